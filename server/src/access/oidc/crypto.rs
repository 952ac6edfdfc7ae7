//! Signatures by ring, which TLS uses already: what jsonwebtoken brings itself is either a C build or
//! pulls in a second set of ciphers.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as sig;

static RING: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// For the whole process; the first call does it.
pub fn install() {
    let _ = RING.install_default();
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

/// Whose keys an algorithm needs; none of those with shared secrets.
pub fn family(algorithm: Algorithm) -> Option<AlgorithmFamily> {
    Some(match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => AlgorithmFamily::Rsa,
        Algorithm::PS256 | Algorithm::PS384 | Algorithm::PS512 => AlgorithmFamily::Rsa,
        _ => return None,
    })
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    // A public key is never a shared secret, whatever the token says of itself.
    if family(*algorithm) != Some(key.family()) {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Ring {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Ring {
    fn is_good(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let parameters = match self.algorithm {
                    Algorithm::RS256 => &sig::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::RS384 => &sig::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &sig::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &sig::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &sig::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &sig::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let key = sig::RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }
            DecodingKeyKind::SecretOrDer(bytes) => {
                let parameters: &dyn sig::VerificationAlgorithm = match self.algorithm {
                    Algorithm::ES256 => &sig::ECDSA_P256_SHA256_FIXED,
                    Algorithm::ES384 => &sig::ECDSA_P384_SHA384_FIXED,
                    Algorithm::EdDSA => &sig::ED25519,
                    _ => return false,
                };
                let key = sig::UnparsedPublicKey::new(parameters, bytes);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

impl signature::Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        match self.is_good(message, signature) {
            true => Ok(()),
            false => Err(signature::Error::new()),
        }
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
