//! Data on an S3-compatible object store.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as ObjectPath;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig};
use tokio::runtime::Handle;

use super::disk::{Disk, io_error, is_ours};

/// Where the objects are. Credentials come from the environment (`AWS_ACCESS_KEY_ID`, …).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3 {
    /// Bucket.
    pub bucket: String,
    /// Put before all names; may be empty.
    pub prefix: String,
    /// URL of the server, where it is not Amazon's.
    pub endpoint: Option<String>,
    /// Region; `us-east-1` where nothing says otherwise.
    pub region: Option<String>,
}

/// Segments as objects under a prefix. A put is durable when the server has answered it.
pub struct ObjectDisk {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    runtime: Handle,
}

/// A request is tried again for so long; a push waits meanwhile.
const RETRY: Duration = Duration::from_secs(20);

/// A client of the store; nothing is asked of it yet.
///
/// # Errors
/// When the settings make no sense.
pub fn connect(settings: &S3) -> io::Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&settings.bucket)
        .with_retry(RetryConfig {
            retry_timeout: RETRY,
            ..RetryConfig::default()
        });
    if let Some(endpoint) = &settings.endpoint {
        let plain = endpoint.starts_with("http://");
        builder = builder.with_endpoint(endpoint).with_allow_http(plain);
    }
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    Ok(Arc::new(builder.build().map_err(io_error)?))
}

impl ObjectDisk {
    /// Connects, and proves that the server refuses to overwrite: a server that does not would
    /// lose segments silently.
    ///
    /// # Errors
    /// When the settings make no sense, the server does not answer, or fails that proof.
    pub fn open(settings: &S3, runtime: Handle, random: u64) -> io::Result<Self> {
        Self::over(connect(settings)?, &settings.prefix, runtime, random)
    }

    /// The same over any object store.
    ///
    /// # Errors
    /// As [`ObjectDisk::open`].
    pub fn over(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        runtime: Handle,
        random: u64,
    ) -> io::Result<Self> {
        let disk = Self {
            store,
            prefix: ObjectPath::from(prefix),
            runtime,
        };
        disk.prove_create_only(random)?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> ObjectPath {
        self.prefix.clone().join(name)
    }

    fn create(&self, path: &ObjectPath, bytes: &[u8]) -> Result<(), Error> {
        let payload = PutPayload::from(bytes.to_vec());
        let put = self.store.put_opts(path, payload, PutMode::Create.into());
        self.runtime.block_on(put).map(|_| ())
    }

    fn prove_create_only(&self, random: u64) -> io::Result<()> {
        let path = self.path(&format!("self-test-{random:016x}"));
        self.create(&path, b"first").map_err(io_error)?;
        let again = self.create(&path, b"second");
        let removed = self.runtime.block_on(self.store.delete(&path));
        match again {
            Err(Error::AlreadyExists { .. }) => removed.map_err(io_error),
            Err(error) => Err(io_error(error)),
            Ok(()) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the object store overwrote an object although it was told to create it only \
                 (If-None-Match: *); segments could be lost on it, use another one",
            )),
        }
    }

    /// After "it exists already": whether what exists is what was to be written. An answer may have
    /// been lost and the request repeated; some servers say so without having written anything.
    fn settle(&self, path: &ObjectPath, bytes: &[u8], error: Error) -> io::Result<()> {
        let stored = self.runtime.block_on(async {
            let got = self.store.get(path).await?;
            got.bytes().await
        });
        match stored {
            Ok(stored) if stored == bytes => Ok(()),
            Err(Error::NotFound { .. }) => self.create(path, bytes).map_err(io_error),
            Ok(_) | Err(_) => Err(io_error(error)),
        }
    }
}

impl Disk for ObjectDisk {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        match self.create(&path, bytes) {
            Err(error @ Error::AlreadyExists { .. }) => self.settle(&path, bytes, error),
            other => other.map_err(io_error),
        }
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let listing = self.store.list(Some(&self.prefix)).try_collect::<Vec<_>>();
        let listed = self.runtime.block_on(listing).map_err(io_error)?;
        let mut files: Vec<(String, u64)> = listed
            .into_iter()
            .filter_map(|meta| Some((meta.location.filename()?.to_owned(), meta.size)))
            .filter(|(name, _)| is_ours(name))
            .collect();
        files.sort();
        Ok(files)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let path = self.path(name);
        let bytes = self.runtime.block_on(self.store.get_range(&path, range));
        bytes.map(|bytes| bytes.to_vec()).map_err(io_error)
    }

    fn shared(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Err(Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
        PutMultipartOptions, PutOptions, PutResult,
    };

    fn disk(store: Arc<dyn ObjectStore>) -> (tokio::runtime::Runtime, io::Result<ObjectDisk>) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let disk = ObjectDisk::over(store, "a/b", runtime.handle().clone(), 7);
        (runtime, disk)
    }

    #[test]
    fn a_name_is_written_once_and_a_lost_answer_is_no_error() {
        let (_runtime, disk) = disk(Arc::new(InMemory::new()));
        let disk = disk.unwrap();
        assert_eq!(disk.list().unwrap(), [], "the proof leaves nothing");
        disk.put_new("1.plseg", b"one").unwrap();
        disk.put_new("1.plseg", b"one").unwrap();
        let taken = disk.put_new("1.plseg", b"two").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(disk.read("1.plseg", 1..3).unwrap(), b"ne");
        assert_eq!(disk.list().unwrap(), [("1.plseg".to_owned(), 3)]);
        disk.remove("1.plseg").unwrap();
        disk.remove("1.plseg").unwrap();
        let gone = disk.read("1.plseg", 0..1).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    /// An object store that has never heard of create-only.
    #[derive(Debug)]
    struct Overwriting(InMemory);

    impl std::fmt::Display for Overwriting {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("overwriting")
        }
    }

    type Listed = futures_util::stream::BoxStream<'static, object_store::Result<ObjectMeta>>;

    #[async_trait::async_trait]
    impl ObjectStore for Overwriting {
        async fn put_opts(
            &self,
            path: &ObjectPath,
            payload: PutPayload,
            _: PutOptions,
        ) -> object_store::Result<PutResult> {
            self.0.put_opts(path, payload, PutOptions::default()).await
        }

        async fn put_multipart_opts(
            &self,
            path: &ObjectPath,
            options: PutMultipartOptions,
        ) -> object_store::Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(path, options).await
        }

        async fn get_opts(
            &self,
            path: &ObjectPath,
            options: GetOptions,
        ) -> object_store::Result<GetResult> {
            self.0.get_opts(path, options).await
        }

        fn delete_stream(
            &self,
            paths: futures_util::stream::BoxStream<'static, object_store::Result<ObjectPath>>,
        ) -> futures_util::stream::BoxStream<'static, object_store::Result<ObjectPath>> {
            self.0.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&ObjectPath>) -> Listed {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(
            &self,
            prefix: Option<&ObjectPath>,
        ) -> object_store::Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(
            &self,
            from: &ObjectPath,
            to: &ObjectPath,
            options: CopyOptions,
        ) -> object_store::Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[test]
    fn a_store_that_overwrites_is_refused() {
        let (_runtime, disk) = disk(Arc::new(Overwriting(InMemory::new())));
        let error = disk.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("overwrote"), "{error}");
    }
}
