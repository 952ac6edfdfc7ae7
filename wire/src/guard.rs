//! Which addresses a client may connect to: asked after a name was resolved, so that the answer is
//! about the very address that is connected to.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Says of each address whether a client may connect to it; the default allows all.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl Guard {
    /// Allows what `allows` says yes to. An IPv6 address that holds an IPv4 one is asked as that.
    pub fn new(allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(allows)))
    }

    /// Whether an address may be connected to.
    pub fn allows(&self, address: IpAddr) -> bool {
        let ask = |allows: &Arc<dyn Fn(IpAddr) -> bool + Send + Sync>| allows(plain(address));
        self.0.as_ref().is_none_or(ask)
    }

    /// Refuses a host that is written as an address; no resolver sees those.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), RefusedAddresses> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) if !self.allows(address) => Err(RefusedAddresses(vec![address])),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Guard"
        } else {
            "no guard"
        })
    }
}

/// `::ffff:127.0.0.1`, NAT64's `64:ff9b::7f00:1` and 6to4's `2002:7f00:1::` lead to 127.0.0.1.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else {
        return address;
    };
    if let Some(four) = six.to_ipv4_mapped() {
        return four.into();
    }
    let [a, b, c, d, e, f, g, h] = six.segments();
    let four = |high: u16, low: u16| {
        IpAddr::from(((u32::from(high) << 16) | u32::from(low)).to_be_bytes())
    };
    match (a, b, [c, d, e, f]) {
        (0x64, 0xff9b, [0, 0, 0, 0]) => four(g, h),
        (0x2002, high, [low, ..]) => four(high, low),
        _ => address,
    }
}

/// All addresses of a host are refused.
#[derive(Debug)]
pub(crate) struct RefusedAddresses(Vec<IpAddr>);

impl RefusedAddresses {
    /// In an error of a connection, wherever it stands.
    pub fn within<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            if let Some(found) = inner.and_then(|inner| inner.downcast_ref()) {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for RefusedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            write!(f, "{address}")?;
        }
        Ok(())
    }
}

impl StdError for RefusedAddresses {}

/// The system's resolver; what the guard refuses is not in its answers.
#[derive(Clone, Debug)]
pub(crate) struct GuardedResolver {
    system: GaiResolver,
    guard: Guard,
}

impl GuardedResolver {
    pub fn new(guard: Guard) -> Self {
        Self {
            system: GaiResolver::new(),
            guard,
        }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<IntoIter<SocketAddr>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.system.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (answer, guard) = (self.system.call(name), self.guard.clone());
        Box::pin(async move {
            let (allowed, refused): (Vec<_>, Vec<_>) = answer
                .await?
                .partition(|address| guard.allows(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                let refused = refused.iter().map(SocketAddr::ip).collect();
                return Err(io::Error::other(RefusedAddresses(refused)));
            }
            Ok(allowed.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_asked_as_what_it_leads_to() {
        let guard = Guard::new(|address| !address.is_loopback());
        for host in [
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::5]",
        ] {
            assert!(guard.check_host(host).is_err(), "{host}");
        }
        for host in ["192.0.2.1", "[2001:db8::1]", "example.com"] {
            assert!(guard.check_host(host).is_ok(), "{host}");
        }
        assert!(Guard::default().check_host("127.0.0.1").is_ok());
    }
}
