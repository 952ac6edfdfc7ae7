//! Certificates from files, read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::changes::{LOOK_AGAIN, changed};

/// Where certificate and key are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// Authorities whose certificates a client may show (mutual TLS); it need not show one.
    pub client_authority: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Missing, unreadable, or not PEM of the wanted kind.
    #[error("cannot read {what} from {}: {reason}", file.display())]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The parts do not fit each other.
    #[error("certificate {} and key {} cannot be used: {reason}", certificate.display(), key.display())]
    Unusable {
        /// Certificate file.
        certificate: PathBuf,
        /// Key file.
        key: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// TLS for connections; clones share the certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Arc<TlsFiles>,
    current: Arc<Mutex<Current>>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    changed: Vec<Option<SystemTime>>,
    looked: Instant,
    failure: Option<String>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`], naming the file.
    pub fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let current = Current {
            config: config(&files)?,
            changed: changed(all_files(&files)),
            looked: Instant::now(),
            failure: None,
        };
        Ok(Tls {
            files: Arc::new(files),
            current: Arc::new(Mutex::new(current)),
        })
    }

    /// Why changed files are not in use; the last good ones are.
    pub fn failure(&self) -> Option<String> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.failure.clone()
    }

    /// Certificate and key of now.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK_AGAIN {
            current.looked = Instant::now();
            let changed = changed(all_files(&self.files));
            // Files that are written one after the other fit again when the last is there.
            if changed != current.changed {
                match config(&self.files) {
                    Ok(config) => {
                        current.config = config;
                        current.changed = changed;
                        current.failure = None;
                    }
                    Err(error) => current.failure = Some(error.to_string()),
                }
            }
        }
        current.config.clone()
    }

    /// The stream, whether HTTP/2 was agreed on, and the client's certificate.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<Accepted> {
        let stream = TlsAcceptor::from(self.config()).accept(stream).await?;
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let first = session.peer_certificates().and_then(|all| all.first());
        let certificate = first.map(|certificate| Arc::from(certificate.as_ref()));
        Ok((stream, is_http2, certificate))
    }
}

type Accepted = (TlsStream<TcpStream>, bool, Option<Arc<[u8]>>);

fn all_files(files: &TlsFiles) -> impl Iterator<Item = &Path> {
    let always = [&files.certificate, &files.key].into_iter();
    always.chain(&files.client_authority).map(PathBuf::as_path)
}

fn certificates(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File {
        what,
        file: file.to_owned(),
        reason,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| failed(error.to_string()));
    let found = found?;
    if found.is_empty() {
        return Err(failed("it holds no CERTIFICATE in PEM".into()));
    }
    Ok(found)
}

fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates("the certificate", &files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::File {
        what: "the private key",
        file: files.key.clone(),
        reason: error.to_string(),
    })?;
    let unusable = |reason: rustls::Error| TlsError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        reason: reason.to_string(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let failed = |reason: String| TlsError::File {
                what: "client authorities",
                file: file.clone(),
                reason,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates("client authorities", file)? {
                let added = roots.add(certificate);
                added.map_err(|error| failed(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
