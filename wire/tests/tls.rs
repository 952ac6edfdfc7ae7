//! TLS of `serve`: HTTP/1.1 and HTTP/2, certificates of clients, new files without a restart.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pilotlight_wire::serve::tls::{Tls, TlsFiles};
use pilotlight_wire::serve::{Edge, Peer, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(fixture(name)).unwrap()
}

fn files(name: &str) -> TlsFiles {
    TlsFiles {
        certificate: fixture(&format!("{name}.pem")),
        key: fixture(&format!("{name}.key")),
        client_authority: Some(fixture("authority.pem")),
    }
}

/// Answers with the number of bytes of the client's certificate, 0 without.
async fn server(tls: Tls) -> SocketAddr {
    let service = service_fn(|request: Request<Incoming>| async move {
        let peer = request.extensions().get::<Peer>().unwrap();
        let length = peer.certificate.as_ref().map_or(0, |shown| shown.len());
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(length.to_string()))))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut edge = Edge::default();
    edge.tls = Some(tls);
    tokio::spawn(serve(listener, edge, service, std::future::pending()));
    address
}

async fn connected(
    address: SocketAddr,
    protocol: &[u8],
    client: Option<&str>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate("authority.pem")).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(fixture(&format!("{name}.key"))).unwrap();
            let chain = vec![certificate(&format!("{name}.pem"))];
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect("localhost".try_into().unwrap(), stream)
        .await
}

fn shown_by(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_and_a_client_may_show_who_it_is() {
    let address = server(Tls::open(files("first")).unwrap()).await;
    let request = || {
        let request = Request::get("https://localhost/").header("Host", "localhost");
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    for client in [None, Some("client")] {
        let expected = client
            .map_or(0, |_| certificate("client.pem").len())
            .to_string();
        let stream = connected(address, b"http/1.1", client).await.unwrap();
        let (mut one, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(driver);
        let answer = one.send_request(request()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, expected);
        let stream = connected(address, b"h2", client).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut two, driver) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .unwrap();
        tokio::spawn(driver);
        let answer = two.send_request(request()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    // The authority of clients is the second server's certificate, which signed nothing.
    let mut files = files("first");
    files.client_authority = Some(fixture("second.pem"));
    let address = server(Tls::open(files).unwrap()).await;
    let stream = connected(address, b"http/1.1", Some("client")).await;
    // In TLS 1.3 the refusal comes with the first answer.
    if let Ok(stream) = stream {
        let (mut one, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(driver);
        let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
        assert!(one.send_request(request).await.is_err());
    }
}

#[tokio::test]
async fn new_files_are_used_without_a_restart_and_broken_ones_are_not() {
    let folder = std::env::temp_dir().join(format!("pilotlight-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let copied = TlsFiles {
        certificate: folder.join("certificate.pem"),
        key: folder.join("key.pem"),
        client_authority: None,
    };
    let copy = |name: &str| {
        std::fs::copy(files(name).certificate, &copied.certificate).unwrap();
        std::fs::copy(files(name).key, &copied.key).unwrap();
    };
    copy("first");
    let tls = Tls::open(copied.clone()).unwrap();
    let address = server(tls.clone()).await;
    let shown = || async { shown_by(&connected(address, b"h2", None).await.unwrap()) };
    assert_eq!(shown().await, certificate("first.pem").to_vec());

    std::fs::write(&copied.certificate, "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert_eq!(shown().await, certificate("first.pem").to_vec());
    let failure = tls.failure().unwrap();
    assert!(failure.contains("certificate.pem"), "{failure}");

    copy("second");
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert_eq!(shown().await, certificate("second.pem").to_vec());
    assert_eq!(tls.failure(), None);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_wrong_with_the_files_is_said() {
    let mut mixed = files("first");
    mixed.key = files("second").key;
    let error = Tls::open(mixed).unwrap_err().to_string();
    assert!(error.contains("second.key"), "{error}");
    let mut missing = files("first");
    missing.certificate = fixture("none.pem");
    let error = Tls::open(missing).unwrap_err().to_string();
    assert!(error.contains("none.pem"), "{error}");
    let mut empty = files("first");
    empty.certificate = fixture("first.key");
    let error = Tls::open(empty).unwrap_err().to_string();
    assert!(error.contains("CERTIFICATE"), "{error}");
}

#[cfg(feature = "client-tls")]
mod client {
    use super::*;
    use pilotlight_wire::{Call, Client, Error, TlsClient, Url};

    async fn asked(address: SocketAddr, tls: TlsClient) -> Result<Vec<u8>, Error> {
        let url = Url::parse(&format!("https://127.0.0.1:{}/", address.port())).unwrap();
        let client = Client::new().with_tls(tls);
        let answer = client.send(Call::get(url.clone())).await?.success()?;
        // The second call uses the connection of the first.
        assert_eq!(client.send(Call::get(url)).await?.body, answer.body);
        Ok(answer.body.to_vec())
    }

    fn trusting(authority: &str) -> TlsClient {
        TlsClient {
            ca_file: Some(fixture(authority)),
            ..TlsClient::default()
        }
    }

    #[tokio::test]
    async fn a_client_checks_the_server_and_shows_who_it_is() {
        let address = server(Tls::open(files("first")).unwrap()).await;
        assert_eq!(
            asked(address, trusting("authority.pem")).await.unwrap(),
            b"0"
        );
        let shows = TlsClient {
            cert_file: Some(fixture("client.pem")),
            key_file: Some(fixture("client.key")),
            ..trusting("authority.pem")
        };
        let length = certificate("client.pem").len().to_string();
        assert_eq!(asked(address, shows).await.unwrap(), length.as_bytes());

        let named = |name: &str| TlsClient {
            server_name: Some(name.to_owned()),
            ..trusting("authority.pem")
        };
        assert_eq!(asked(address, named("localhost")).await.unwrap(), b"0");
        let error = asked(address, named("elsewhere.example"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("not valid for name"), "{error}");

        let error = asked(address, trusting("second.pem")).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        let trusts_all = TlsClient {
            insecure_skip_verify: true,
            ..trusting("second.pem")
        };
        assert_eq!(asked(address, trusts_all).await.unwrap(), b"0");
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_are_named() {
        let address = server(Tls::open(files("first")).unwrap()).await;
        let half = TlsClient {
            cert_file: Some(fixture("client.pem")),
            ..trusting("authority.pem")
        };
        let other = TlsClient {
            key_file: Some(fixture("second.key")),
            ..half.clone()
        };
        let cases = [
            (trusting("missing.pem"), "missing.pem"),
            (trusting("first.key"), "first.key holds no CERTIFICATE"),
            (half, "must be given together"),
            (other, "do not fit"),
        ];
        for (tls, text) in cases {
            let error = asked(address, tls).await.unwrap_err();
            assert!(matches!(error, Error::Tls { .. }), "{error:?}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
