use crate::handler::Start;

/// Follows saved frame pointers; correct only in a build that keeps them everywhere.
#[cfg_attr(
    feature = "unwinders",
    expect(dead_code, reason = "measured in the other variant")
)]
pub fn walk(start: &Start, out: &mut [u64]) -> usize {
    let Some((leaf, rest)) = out.split_first_mut() else {
        return 0;
    };
    *leaf = start.ip;
    let (mut bp, mut frames, mut low) = (start.bp, 1, start.sp);
    for slot in rest {
        // Two words must lie in the stack, above the frame before.
        if bp < low || !bp.is_multiple_of(8) || bp > start.stack.end - 16 {
            break;
        }
        // SAFETY: both words lie between the interrupted stack pointer and the stack's end.
        let (next, return_address) = unsafe { (*(bp as *const u64), *((bp + 8) as *const u64)) };
        *slot = return_address;
        frames += 1;
        low = bp + 16;
        bp = next;
    }
    frames
}
