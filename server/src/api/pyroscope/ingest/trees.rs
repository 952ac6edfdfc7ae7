//! Pyroscope's binary trees. A node is length and bytes of its name, its value, and the number of its
//! children, all numbers LEB128; nodes stand in preorder. In a *tree* a node is a frame below a root
//! without a name; in a *trie* names are pieces of folded text, joined from the root on.

use pilotlight_profile::{LocationId, Profile};

use super::folded;
use super::stacks::{Numbers, Stacks};

/// Reads bytes from the front.
struct Bytes<'a> {
    left: &'a [u8],
    whole: usize,
}

impl<'a> Bytes<'a> {
    fn number(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, left) = self.left.split_first().ok_or_else(|| self.cut())?;
            self.left = left;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(format!("byte {}: a number without an end", self.at()))
    }

    fn at(&self) -> usize {
        self.whole - self.left.len()
    }

    fn cut(&self) -> String {
        format!("the tree ends too early, at byte {}", self.at())
    }

    fn node(&mut self) -> Result<Node<'a>, String> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let Some((name, left)) = self.left.split_at_checked(length) else {
            return Err(self.cut());
        };
        self.left = left;
        let value = self.number()? as i64;
        Ok(Node {
            name,
            value,
            children: self.number()?,
        })
    }
}

struct Node<'a> {
    name: &'a [u8],
    value: i64,
    children: u64,
}

/// Calls `visit` with the depth of each node.
fn walk<'a>(
    bytes: &'a [u8],
    most_deep: u64,
    mut visit: impl FnMut(usize, &Node<'a>) -> Result<(), String>,
) -> Result<(), String> {
    let mut bytes = Bytes {
        left: bytes,
        whole: bytes.len(),
    };
    // Children still to come of each open node.
    let mut open = vec![1_u64];
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let node = bytes.node()?;
        visit(open.len() - 1, &node)?;
        if open.len() as u64 > most_deep {
            return Err(format!("the tree is deeper than the limit of {most_deep}"));
        }
        open.push(node.children);
    }
    match bytes.left {
        [] => Ok(()),
        rest => Err(format!("{} bytes after the end of the tree", rest.len())),
    }
}

/// Format `tree`.
///
/// # Errors
/// With the byte where it is no tree, or of a limit.
pub fn tree(bytes: &[u8], numbers: &Numbers) -> Result<Profile, String> {
    let mut out = Stacks::new(numbers);
    let mut path: Vec<LocationId> = Vec::new();
    walk(bytes, numbers.limits.stack_depth, |depth, node| {
        path.truncate(depth.saturating_sub(1));
        if depth > 0 {
            path.push(out.named(node.name));
        }
        match node.value {
            0 => Ok(()),
            value => out.add(&path, value),
        }
    })?;
    Ok(out.finish())
}

/// Format `trie`.
///
/// # Errors
/// With the byte where it is no trie, or of a limit.
pub fn trie(bytes: &[u8], numbers: &Numbers) -> Result<Profile, String> {
    let mut out = Stacks::new(numbers);
    let (mut text, mut ends, mut path) = (Vec::new(), Vec::new(), Vec::new());
    let mut spelled = 0_u64;
    walk(bytes, numbers.limits.stack_depth, |depth, node| {
        ends.truncate(depth);
        text.truncate(ends.last().copied().unwrap_or(0));
        text.extend_from_slice(node.name);
        ends.push(text.len());
        if node.value == 0 {
            return Ok(());
        }
        // A long text with many short ends costs its whole length each time.
        spelled += text.len() as u64;
        if spelled > numbers.limits.inflated_bytes {
            let limit = numbers.limits.inflated_bytes;
            return Err(format!(
                "spelled out, the trie is longer than {limit} bytes"
            ));
        }
        folded::parts(&mut out, &text, &mut path);
        out.add(&path, node.value)
    })?;
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::super::stacks::PERIOD_NS;
    use super::*;
    use pilotlight_profile::{Limits, to_collapsed};

    fn node(out: &mut Vec<u8>, name: &str, value: u8, children: u8) {
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend([value, children]);
    }

    fn numbers(limits: &Limits) -> Numbers<'_> {
        Numbers {
            kind: kind::CPU,
            period_ns: PERIOD_NS,
            limits,
        }
    }

    fn text(profile: &Profile) -> String {
        let mut text = Vec::new();
        to_collapsed(profile, 0, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn names_of_a_tree_are_frames_and_those_of_a_trie_pieces_of_text() {
        let limits = Limits::default();
        let mut bytes = Vec::new();
        for (name, value, children) in [("", 0, 1), ("main", 1, 2), ("b", 2, 0), ("c", 3, 0)] {
            node(&mut bytes, name, value, children);
        }
        let read = tree(&bytes, &numbers(&limits)).unwrap();
        assert_eq!(text(&read), "main 1\nmain;b 2\nmain;c 3\n");
        assert_eq!(read.total(1), 60_000_000);

        let mut bytes = Vec::new();
        for (name, value, children) in [("", 0, 1), ("main;", 0, 2), ("ab", 2, 1), ("c", 3, 0)] {
            node(&mut bytes, name, value, children);
        }
        node(&mut bytes, "d;e", 4, 0);
        let read = trie(&bytes, &numbers(&limits)).unwrap();
        assert_eq!(text(&read), "main;ab 2\nmain;abc 3\nmain;d;e 4\n");
    }

    #[test]
    fn what_is_no_tree_is_an_error_with_its_place() {
        let limits = Limits::default();
        for read in [tree, trie] {
            let numbers = numbers(&limits);
            assert_eq!(
                read(&[0, 0, 1], &numbers).unwrap_err(),
                "the tree ends too early, at byte 3"
            );
            assert_eq!(
                read(&[9, b'a'], &numbers).unwrap_err(),
                "the tree ends too early, at byte 1"
            );
            assert!(
                read(&[0, 0, 0, 7], &numbers)
                    .unwrap_err()
                    .contains("1 bytes after")
            );
            assert!(
                read(&[0xff; 12], &numbers)
                    .unwrap_err()
                    .contains("without an end")
            );
        }
    }

    #[test]
    fn a_tree_that_is_one_long_stack_meets_the_limit_of_frames() {
        let mut limits = Limits::default();
        limits.stack_frames = 1000;
        let mut bytes = Vec::new();
        node(&mut bytes, "", 0, 1);
        for _ in 0..100 {
            node(&mut bytes, "f", 1, 1);
        }
        node(&mut bytes, "f", 1, 0);
        let error = tree(&bytes, &numbers(&limits)).unwrap_err();
        assert!(error.contains("more than 1000 frames"), "{error}");
        limits.stack_depth = 20;
        let error = tree(&bytes, &numbers(&limits)).unwrap_err();
        assert!(error.contains("limit of 20"), "{error}");
    }
}
