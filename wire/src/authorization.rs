//! What a client shows to be let in.

use std::fmt;
use std::path::PathBuf;

use http::HeaderValue;

/// The header `Authorization`, from a text or a file. Its secret is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization {
    kind: String,
    secret: Secret,
}

#[derive(Clone, PartialEq, Eq)]
enum Secret {
    Text(String),
    File(PathBuf),
}

impl Authorization {
    /// `Authorization: Bearer TOKEN`.
    pub fn bearer(token: impl Into<String>) -> Self {
        Self::text("Bearer", token)
    }

    /// `Authorization: KIND CREDENTIALS`.
    pub fn text(kind: impl Into<String>, credentials: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            secret: Secret::Text(credentials.into()),
        }
    }

    /// The same with credentials from a file, which is read for each request: it may change.
    pub fn file(kind: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        Self {
            kind: kind.into(),
            secret: Secret::File(file.into()),
        }
    }

    /// The header's value.
    ///
    /// # Errors
    /// A text that names the file and why it cannot be read, or that it is no value of a header.
    pub fn header(&self) -> Result<HeaderValue, String> {
        let credentials = match &self.secret {
            Secret::Text(text) => text.clone(),
            Secret::File(file) => std::fs::read_to_string(file).map_err(|error| {
                format!("cannot read the credentials in {}: {error}", file.display())
            })?,
        };
        let value = format!("{} {}", self.kind, credentials.trim());
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| "the credentials hold what no header may".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.secret {
            Secret::Text(_) => write!(f, "Authorization({} <secret>)", self.kind),
            Secret::File(file) => write!(f, "Authorization({} in {})", self.kind, file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_in_the_header_and_nowhere_else() {
        let authorization = Authorization::bearer("s3cret");
        assert_eq!(authorization.header().unwrap(), "Bearer s3cret");
        assert!(!format!("{authorization:?}").contains("s3cret"));
        assert!(!format!("{:?}", authorization.header()).contains("s3cret"));
        assert!(Authorization::bearer("a\nb").header().is_err());
        let missing = Authorization::file("Bearer", "/nowhere/token").header();
        assert!(missing.unwrap_err().contains("/nowhere/token"));
    }
}
