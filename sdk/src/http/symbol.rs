//! `/debug/pprof/symbol`: program counters to function names, as `go tool pprof` asks for them.

use super::query::parse_uint;

/// Go reads addresses through a buffer of this size and gives up on a longer word.
const WORD_LIMIT: usize = 4096;

/// The reply to `0x…+0x…`. Counters without a name are left out.
pub(crate) fn reply(
    input: &[u8],
    has_names: bool,
    resolve: impl Fn(u64) -> Option<String>,
) -> Vec<u8> {
    // Clients only look whether this number is zero.
    let mut out = format!("num_symbols: {}\n", u8::from(has_names));
    for word in input.split(|&byte| byte == b'+') {
        if word.len() >= WORD_LIMIT {
            out.push_str("reading request: bufio: buffer full\n");
            break;
        }
        let pc = parse_uint(word);
        if pc == 0 {
            continue;
        }
        if let Some(name) = resolve(pc) {
            out.push_str(&format!("{pc:#x} {}\n", one_line(&name)));
        }
    }
    out.into_bytes()
}

/// Symbol tables may hold anything; a line break would forge an answer.
fn one_line(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pc: u64) -> Option<String> {
        (pc != 7).then(|| format!("f{pc}"))
    }

    #[test]
    fn resolves_each_counter_and_leaves_out_unknown_ones() {
        assert_eq!(
            reply(b"0x10+0+7+zz+32", true, name),
            b"num_symbols: 1\n0x10 f16\n0x20 f32\n"
        );
        assert_eq!(reply(b"", false, |_| None), b"num_symbols: 0\n");
    }

    #[test]
    fn overlong_word_ends_the_reply_as_in_go() {
        let input = [b"0x10+".as_slice(), &[b'1'; 5000], b"+0x20"].concat();
        assert_eq!(
            String::from_utf8(reply(&input, true, name)).unwrap(),
            "num_symbols: 1\n0x10 f16\nreading request: bufio: buffer full\n"
        );
    }

    #[test]
    fn line_breaks_in_names_cannot_forge_lines() {
        let out = reply(b"1", true, |_| Some("a\n0x2 b".into()));
        assert_eq!(out, b"num_symbols: 1\n0x1 a?0x2 b\n");
    }
}
