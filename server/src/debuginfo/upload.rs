//! Files on their way in. What has arrived stands on disk, so that an upload goes on where it was
//! after a crash of either side; nothing counts before the whole file was checked.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::facts::{Facts, Quality, hex, inspect, normal_id};
use super::parse::{Reader, Unread};
use super::record::Source;

/// What a sender says of a file before it sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// One of the file's ids.
    pub build_id: String,
    /// What the sender thinks that it tells.
    pub quality: Quality,
    /// Whether the machine code is in it.
    #[serde(default)]
    pub has_code: bool,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// SHA-256 of the file, hex; empty where the protocol has none.
    #[serde(default)]
    pub sha256: String,
    /// Name of the binary, for people.
    #[serde(default)]
    pub name: String,
    /// Of a protocol that has another hash than SHA-256.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// What to say of a local file before it is sent. Blocks.
///
/// # Errors
/// When it cannot be read, or is no file that names addresses; the text says why.
pub fn describe(path: &Path) -> Result<Announced, String> {
    let facts = inspect(path)?;
    if facts.quality == Quality::None && !facts.has_code {
        return Err("it has neither names nor code".to_owned());
    }
    let unread = |error: io::Error| format!("it cannot be read: {error}");
    let name = path.file_name().unwrap_or_default();
    Ok(Announced {
        build_id: facts.ids().next().unwrap_or_default().to_owned(),
        quality: facts.quality,
        has_code: facts.has_code,
        size_bytes: fs::metadata(path).map_err(unread)?.len(),
        sha256: sha256_of(path).map_err(unread)?,
        name: name.to_string_lossy().into_owned(),
        hash: String::new(),
    })
}

/// Why an upload does not go on.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// No such upload.
    #[error("upload {0} is not known here; begin again at /api/v1/debuginfo/uploads")]
    Unknown(String),
    /// The bytes do not follow those that are here.
    #[error("the next byte is that at offset {expected}, and these begin at {given}")]
    Offset {
        /// Where to go on.
        expected: u64,
        /// What was sent.
        given: u64,
    },
    /// More than a file may have, or was announced.
    #[error("{0}")]
    TooLarge(String),
    /// The file is not what was announced, or no file of ours.
    #[error("{0}")]
    Invalid(String),
    /// Too many at a time.
    #[error("{0} uploads are under way, the limit of this server; try again later")]
    Busy(usize),
    /// The room for debug information is full.
    #[error("{0}")]
    Full(String),
    /// The disk.
    #[error("the server cannot keep the file ({0}); send it again when that is mended")]
    Io(#[from] io::Error),
}

/// Answer to an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// Send the bytes from `offset` on.
    Upload {
        /// Name of the upload.
        id: String,
        /// First byte that is missing.
        offset: u64,
    },
    /// The server has this file or a better one.
    NotNeeded(&'static str),
}

/// A whole, checked file.
#[derive(Debug)]
pub struct Arrived {
    /// Where it is; the receiver moves it away.
    pub path: PathBuf,
    /// What it says of itself.
    pub facts: Facts,
    /// Bytes.
    pub size_bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// Name for people.
    pub name: String,
    /// Who brought it.
    pub source: Source,
}

struct Upload {
    announced: Announced,
    source: Source,
    /// Held while bytes are written or checked.
    busy: Arc<tokio::sync::Mutex<()>>,
    used_ns: i64,
}

/// Uploads under way.
pub struct Uploads {
    folder: PathBuf,
    max_bytes: u64,
    open: Mutex<HashMap<String, Upload>>,
}

/// Uploads at a time.
const MAX_OPEN: usize = 256;
/// An upload that nobody goes on with is forgotten after an hour.
const STALE_NS: i64 = 3_600_000_000_000;

impl Uploads {
    /// Opens the folder and finds the uploads that an earlier process began.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(folder: PathBuf, max_bytes: u64, now_ns: i64) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut open = HashMap::new();
        for entry in fs::read_dir(&folder)?.flatten() {
            let path = entry.path();
            let id = path.file_stem().unwrap_or_default().to_string_lossy();
            let found = fs::read(path.with_extension("json")).ok();
            let found = found.and_then(|bytes| serde_json::from_slice::<Announced>(&bytes).ok());
            match found {
                Some(announced) => {
                    open.insert(
                        id.into_owned(),
                        Upload::new(announced, Source::Upload, now_ns),
                    );
                }
                None => drop(fs::remove_file(&path)),
            }
        }
        Ok(Self {
            folder,
            max_bytes,
            open: Mutex::new(open),
        })
    }

    /// Begins an upload, or finds the one that was begun with the same words.
    ///
    /// # Errors
    /// When the announcement makes no sense or there is no room.
    pub fn start(
        &self,
        announced: Announced,
        source: Source,
        now_ns: i64,
    ) -> Result<Started, UploadError> {
        self.check(&announced)?;
        self.forget_stale(now_ns);
        let id = name_of(&announced);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(&id) {
            if open.len() >= MAX_OPEN {
                return Err(UploadError::Busy(MAX_OPEN));
            }
            File::create(self.part(&id))?;
            let words = serde_json::to_vec(&announced).map_err(io::Error::other)?;
            fs::write(self.part(&id).with_extension("json"), words)?;
            open.insert(id.clone(), Upload::new(announced, source, now_ns));
        }
        let offset = fs::metadata(self.part(&id)).map_or(0, |of| of.len());
        Ok(Started::Upload { id, offset })
    }

    fn check(&self, announced: &Announced) -> Result<(), UploadError> {
        let Announced {
            build_id,
            size_bytes,
            sha256,
            name,
            ..
        } = announced;
        let plain = |text: &str| !text.chars().any(char::is_control);
        if build_id.is_empty() || build_id.len() > 256 || !plain(build_id) {
            let text = "build_id: the file's GNU build id or htlhash in hex, or Go's build id";
            return Err(UploadError::Bad(text.to_owned()));
        }
        if name.len() > 1024 || !plain(name) {
            let text = "name: at most 1,024 bytes, and no control characters";
            return Err(UploadError::Bad(text.to_owned()));
        }
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
        if !sha256.is_empty() && !is_hash {
            let text = "sha256: 64 hexadecimal digits, those of the whole file";
            return Err(UploadError::Bad(text.to_owned()));
        }
        if *size_bytes == 0 || *size_bytes > self.max_bytes {
            let text = format!(
                "size_bytes: {size_bytes}; a file may have from 1 to {} bytes here \
                 (server.debuginfo.max_file_bytes)",
                self.max_bytes
            );
            return Err(UploadError::TooLarge(text));
        }
        Ok(())
    }

    fn part(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.part"))
    }

    fn forget_stale(&self, now_ns: i64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = |upload: &Upload| {
            now_ns.saturating_sub(upload.used_ns) > STALE_NS && upload.busy.try_lock().is_ok()
        };
        let gone: Vec<String> = open
            .iter()
            .filter(|(_, upload)| stale(upload))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            open.remove(&id);
            self.delete(&id);
        }
    }

    fn delete(&self, id: &str) {
        let _ = fs::remove_file(self.part(id));
        let _ = fs::remove_file(self.part(id).with_extension("json"));
    }

    /// Takes hold of an upload. Whoever has the guard is alone with its file.
    ///
    /// # Errors
    /// [`UploadError::Unknown`].
    pub async fn hold(&self, id: &str, now_ns: i64) -> Result<Held, UploadError> {
        let busy = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let upload = open.get_mut(id);
            let upload = upload.ok_or_else(|| UploadError::Unknown(id.to_owned()))?;
            upload.used_ns = now_ns;
            upload.busy.clone()
        };
        let guard = busy.lock_owned().await;
        // It may have been finished meanwhile.
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let upload = open.get(id);
        let upload = upload.ok_or_else(|| UploadError::Unknown(id.to_owned()))?;
        Ok(Held {
            id: id.to_owned(),
            path: self.part(id),
            announced: upload.announced.clone(),
            source: upload.source,
            _guard: guard,
        })
    }

    /// Checks a file that has arrived whole. After [`UploadError::Invalid`] the upload is gone.
    /// Blocks.
    ///
    /// # Errors
    /// When bytes are missing, or the file is not what was announced.
    pub fn finish(&self, held: &Held, reader: &Reader) -> Result<Arrived, UploadError> {
        let size_bytes = fs::metadata(&held.path)?.len();
        let announced = &held.announced;
        if size_bytes < announced.size_bytes {
            return Err(UploadError::Bad(format!(
                "{size_bytes} of {} bytes are here; send the rest first",
                announced.size_bytes
            )));
        }
        let checked = check_file(held, size_bytes, reader);
        if matches!(checked, Err(UploadError::Invalid(_))) {
            self.close(held);
        }
        checked
    }

    /// Ends an upload, and removes what of its file is still there.
    pub fn close(&self, held: &Held) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&held.id);
        self.delete(&held.id);
    }

    /// Uploads under way.
    pub fn count(&self) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.len()
    }
}

/// An upload that only the holder works on.
pub struct Held {
    id: String,
    path: PathBuf,
    announced: Announced,
    source: Source,
    _guard: tokio::sync::OwnedMutexGuard<()>,
}

impl Held {
    /// What the sender said.
    pub fn announced(&self) -> &Announced {
        &self.announced
    }

    /// Opens the file to write on at `offset`; answers it with the bytes that are still to come.
    ///
    /// # Errors
    /// [`UploadError::Offset`] when other bytes come next.
    pub async fn append(&self, offset: u64) -> Result<(tokio::fs::File, u64), UploadError> {
        let mut options = tokio::fs::OpenOptions::new();
        let file = options.append(true).open(&self.path).await?;
        let expected = file.metadata().await?.len();
        if expected != offset {
            let given = offset;
            return Err(UploadError::Offset { expected, given });
        }
        Ok((file, self.announced.size_bytes.saturating_sub(offset)))
    }

    /// Forgets what has come.
    ///
    /// # Errors
    /// What the system says.
    pub async fn restart(&self) -> io::Result<()> {
        tokio::fs::File::create(&self.path).await.map(drop)
    }

    /// Bytes that are here.
    ///
    /// # Errors
    /// What the system says.
    pub fn received(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }
}

impl Upload {
    fn new(announced: Announced, source: Source, used_ns: i64) -> Self {
        Self {
            announced,
            source,
            busy: Arc::default(),
            used_ns,
        }
    }
}

/// The same words give the same name, so that a sender that starts anew goes on.
fn name_of(announced: &Announced) -> String {
    let id = normal_id(&announced.build_id);
    let Announced {
        size_bytes,
        sha256,
        hash,
        ..
    } = announced;
    let words = format!("{id}\n{size_bytes}\n{sha256}\n{hash}");
    hex(&Sha256::digest(words)[..16])
}

/// SHA-256 of a file, hex. Blocks.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

fn check_file(held: &Held, size_bytes: u64, reader: &Reader) -> Result<Arrived, UploadError> {
    let Announced {
        build_id,
        sha256: promised,
        name,
        ..
    } = &held.announced;
    let sha256 = sha256_of(&held.path)?;
    if !promised.is_empty() && !promised.eq_ignore_ascii_case(&sha256) {
        return Err(UploadError::Invalid(format!(
            "the file that arrived has the SHA-256 {sha256} and not {promised}; begin again"
        )));
    }
    let facts = reader.inspect(&held.path).map_err(|unread| match unread {
        Unread::File(reason) => UploadError::Invalid(format!("no debug information: {reason}")),
        Unread::Here(reason) => UploadError::Io(io::Error::other(reason)),
    })?;
    if !facts.has_id(build_id) {
        let ids: Vec<&str> = facts.ids().collect();
        return Err(UploadError::Invalid(format!(
            "the file does not have the build id {build_id}; it has {}",
            ids.join(" and ")
        )));
    }
    Ok(Arrived {
        path: held.path.clone(),
        facts,
        size_bytes,
        sha256,
        name: base_name(name).to_owned(),
        source: held.source,
    })
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}
