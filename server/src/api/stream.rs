//! Large answers go out piece by piece: each is made when the client has taken the one before, so that
//! no answer stands in memory as columns, as bytes and zipped at once.

use std::convert::Infallible;
use std::io::Write;
use std::mem;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::query::tree::Tree;

/// Bytes of a piece, before they are zipped. What is no longer is sent whole, with its length.
const PIECE: usize = 256 << 10;

/// Where the bytes come from.
pub(super) trait Source: Send + 'static {
    /// Appends the next bytes, until `out` has `enough`; `false` when these were the last.
    fn put(&mut self, out: &mut Vec<u8>, enough: usize) -> bool;
}

/// The body of an answer.
pub(super) fn body(source: impl Source, gzip: bool) -> Body {
    let mut pieces = Pieces {
        source,
        // Level 1: small integers; more effort costs more than a local network does.
        gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        done: false,
    };
    let first = pieces.next().unwrap_or_default();
    if pieces.done {
        return Body::from(first);
    }
    let all = std::iter::once(first).chain(pieces);
    Body::from_stream(futures_util::stream::iter(all.map(Ok::<_, Infallible>)))
}

struct Pieces<S> {
    source: S,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

impl<S: Source> Iterator for Pieces<S> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        // The encoder may keep all of a piece back.
        while !self.done {
            let mut piece = Vec::with_capacity(PIECE);
            self.done = !self.source.put(&mut piece, PIECE);
            if let Some(gzip) = &mut self.gzip {
                // Writing to memory does not fail.
                let _ = gzip.write_all(&piece);
                if self.done {
                    let _ = gzip.try_finish();
                }
                piece = mem::take(gzip.get_mut());
            }
            if !piece.is_empty() {
                return Some(piece.into());
            }
        }
        None
    }
}

/// A tree, as `docs/formats/tree.md` has it.
pub(super) struct OfTree {
    tree: Tree,
    meta: Vec<u8>,
    next: usize,
}

impl OfTree {
    pub(super) fn new(tree: Tree, meta: Vec<u8>) -> Self {
        let next = 0;
        Self { tree, meta, next }
    }
}

impl Source for OfTree {
    fn put(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        let next = self.tree.put(&self.meta, self.next, enough, out);
        self.next = next.unwrap_or(0);
        next.is_some()
    }
}

/// Bytes that are there already, and are zipped on their way.
pub(super) struct OfBytes(pub(super) Bytes);

impl Source for OfBytes {
    fn put(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        let room = enough.saturating_sub(out.len()).min(self.0.len());
        out.extend_from_slice(&self.0.split_to(room));
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn tree(nodes: u32) -> Tree {
        Tree {
            names: (0..=nodes % 5000).map(|n| format!("f{n}")).collect(),
            name: (0..nodes).map(|n| n % 5000).collect(),
            depth: (0..nodes).map(|n| n % 100).collect(),
            self_value: (0..nodes).map(|n| i64::from(n) * 7919 - 100).collect(),
            base_self: (0..nodes).map(i64::from).collect(),
            ..Tree::default()
        }
    }

    fn bytes(tree: &Tree, meta: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        assert_eq!(tree.put(meta, 0, usize::MAX, &mut whole), None);
        whole
    }

    async fn all(body: Body) -> Vec<u8> {
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        bytes.to_vec()
    }

    #[tokio::test]
    async fn in_pieces_and_whole_an_answer_is_the_same_bytes() {
        for nodes in [0, 1, 1000, 400_000] {
            let whole = bytes(&tree(nodes), b"{\"meta\":1}");
            let source = || OfTree::new(tree(nodes), b"{\"meta\":1}".to_vec());
            assert!(all(body(source(), false)).await == whole, "{nodes} nodes");
            let zipped = all(body(source(), true)).await;
            let mut unzipped = Vec::new();
            let mut gzip = flate2::read::GzDecoder::new(zipped.as_slice());
            gzip.read_to_end(&mut unzipped).unwrap();
            assert!(unzipped == whole, "{nodes} nodes, zipped");
            assert!(all(body(OfBytes(whole.clone().into()), false)).await == whole);
        }
    }

    #[test]
    fn only_a_piece_at_a_time_stands_in_memory() {
        let whole = bytes(&tree(400_000), b"").len();
        for gzip in [false, true] {
            let pieces = Pieces {
                source: OfTree::new(tree(400_000), Vec::new()),
                gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
                done: false,
            };
            let sizes: Vec<usize> = pieces.map(|piece| piece.len()).collect();
            let most = sizes.iter().max().unwrap();
            // The last item of a piece may be a long name; zipping may keep something back.
            assert!(*most < 2 * PIECE, "{sizes:?}");
            assert!(sizes.len() >= whole / PIECE / 4, "{sizes:?} of {whole}");
        }
    }
}
