//! Captures that several clients share. A stand-in until the sampler lands: an empty profile.

#[derive(Debug)]
pub(crate) struct Subscription(());

pub(crate) struct StubProfile;

impl StubProfile {
    pub(crate) fn to_pprof_gz(&self) -> Vec<u8> {
        // gzip of a profile that holds only its string table
        vec![
            0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 2, 0, 0xfd, 0xff, 0x32, 0, 0x8e, 0x46, 0xa9,
            0xac, 2, 0, 0, 0,
        ]
    }
}

#[derive(Debug)]
pub(crate) enum CaptureError {}

impl std::fmt::Display for CaptureError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

pub(crate) fn subscribe() -> Result<Subscription, CaptureError> {
    Ok(Subscription(()))
}

impl Subscription {
    pub(crate) fn finish(self) -> StubProfile {
        StubProfile
    }
}

pub(crate) fn resolve_symbol(_pc: u64) -> Option<String> {
    None
}
