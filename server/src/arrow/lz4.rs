//! Frames of LZ4 whose size is known before: block by block into one buffer, so that a frame takes no
//! memory of its own by what it says of its blocks.

use super::Fault;

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
/// Matches reach back so far.
const WINDOW: usize = 64 << 10;

/// Unpacks one frame of `size` bytes. Its checksums are not looked at: the transport has its own.
pub fn unpack(frame: &[u8], size: usize) -> Result<Vec<u8>, Fault> {
    let cut = || Fault::new("a packed buffer ends early");
    let rest = frame.strip_prefix(&MAGIC);
    let rest = rest.ok_or_else(|| Fault::new("a packed buffer is no frame of LZ4"))?;
    let flags = *rest.first().ok_or_else(cut)?;
    let (block_sums, has_size, has_dictionary) = (flags & 0x10, flags & 0x08, flags & 0x01);
    if flags >> 6 != 1 || has_dictionary != 0 {
        return Err(Fault::new(
            "a packed buffer is a frame of LZ4 of another version",
        ));
    }
    // Flags, block size, content size, header checksum.
    let head = if has_size == 0 { 3 } else { 11 };
    let mut rest = rest.get(head..).ok_or_else(cut)?;
    let mut out = vec![0; size];
    let mut done = 0;
    loop {
        let (word, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let word = u32::from_le_bytes(*word);
        if word == 0 {
            break;
        }
        let len = (word & 0x7fff_ffff) as usize;
        let block = after.get(..len).ok_or_else(cut)?;
        let (before, room) = out.split_at_mut(done);
        done += match word >> 31 {
            0 => {
                let window = &before[before.len().saturating_sub(WINDOW)..];
                let read = lz4_flex::block::decompress_into_with_dict(block, room, window);
                read.map_err(|error| Fault::new(format!("a packed buffer: {error}")))?
            }
            _ => {
                let room = room.get_mut(..len).ok_or_else(cut)?;
                room.copy_from_slice(block);
                len
            }
        };
        let sum = if block_sums == 0 { 0 } else { 4 };
        rest = after.get(len + sum..).ok_or_else(cut)?;
    }
    out.truncate(done);
    Ok(out)
}
