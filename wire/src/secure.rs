//! TLS towards servers: whom to trust, what to show, and files that are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Legacy;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::changes::{LOOK_AGAIN, changed};
use crate::client::{Connector, connector, pool};
use crate::guard::Guard;

/// How a client and a server trust each other: Prometheus' `tls_config`. The default trusts the
/// system's authorities (and `SSL_CERT_FILE`, `SSL_CERT_DIR`) and shows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsClient {
    /// Authorities in PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate in PEM that the client shows; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must have, instead of the URL's host.
    pub server_name: Option<String>,
    /// Trusts any certificate: whoever is between the two reads and writes everything.
    pub insecure_skip_verify: bool,
}

type Pool = Legacy<HttpsConnector<Connector>, Full<Bytes>>;

/// The pool of secure connections, made at the first call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secure {
    tls: Arc<TlsClient>,
    guard: Guard,
    made: Arc<Mutex<Option<Made>>>,
}

#[derive(Debug)]
struct Made {
    pool: Pool,
    changed: Vec<Option<SystemTime>>,
    looked: Instant,
}

impl Secure {
    pub fn new(tls: TlsClient, guard: Guard) -> Self {
        Secure {
            tls: Arc::new(tls),
            guard,
            made: Arc::default(),
        }
    }

    /// The same files behind another guard, with connections of its own.
    pub fn guarded(&self, guard: Guard) -> Self {
        Secure {
            tls: self.tls.clone(),
            guard,
            made: Arc::default(),
        }
    }

    /// The pool for the files of now; those that do not fit leave the last good ones in use.
    pub fn pool(&self) -> Result<Pool, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match &mut *made {
            Some(known) if known.looked.elapsed() < LOOK_AGAIN => return Ok(known.pool.clone()),
            Some(known) => {
                known.looked = Instant::now();
                let changed = self.tls.changed();
                if changed == known.changed {
                    return Ok(known.pool.clone());
                }
                changed
            }
            None => self.tls.changed(),
        };
        match (self.tls.pool(&self.guard), &*made) {
            (Ok(pool), _) => {
                *made = Some(Made {
                    pool: pool.clone(),
                    changed,
                    looked: Instant::now(),
                });
                Ok(pool)
            }
            (Err(_), Some(known)) => Ok(known.pool.clone()),
            (Err(reason), None) => Err(reason),
        }
    }
}

impl TlsClient {
    fn changed(&self) -> Vec<Option<SystemTime>> {
        let files = [&self.ca_file, &self.cert_file, &self.key_file];
        changed(files.into_iter().flatten().map(PathBuf::as_path))
    }

    fn pool(&self, guard: &Guard) -> Result<Pool, String> {
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(self.config()?)
            .https_only();
        let builder = match &self.server_name {
            None => builder.enable_http1(),
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                let parsed =
                    parsed.map_err(|_| format!("server_name {name:?} is no name of a host"))?;
                let fixed = FixedServerNameResolver::new(parsed);
                builder.with_server_name_resolver(fixed).enable_http1()
            }
        };
        let mut plain = connector(guard);
        plain.enforce_http(false);
        Ok(pool(builder.wrap_connector(plain)))
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.insecure_skip_verify {
            let any = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(any)
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        match (&self.cert_file, &self.key_file) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let file = key;
                let key = PrivateKeyDer::from_pem_file(file)
                    .map_err(|error| format!("cannot read the key {}: {error}", file.display()))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    let certificate = certificate.display();
                    format!("{certificate} and {} do not fit: {error}", file.display())
                })
            }
            _ => Err("cert_file and key_file must be given together".to_owned()),
        }
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(file) = &self.ca_file else {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            return match roots.is_empty() {
                true => Err(
                    "this system has no authorities (package ca-certificates); name some by ca_file, or by the \
                     variable SSL_CERT_FILE"
                        .to_owned(),
                ),
                false => Ok(roots),
            };
        };
        for certificate in certificates(file)? {
            let added = roots.add(certificate);
            added.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(format!("{} holds no CERTIFICATE in PEM", file.display()))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// `insecure_skip_verify`: the handshake is checked, who it is with is not.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
