//! Starting, wiring and stopping.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::api::{self, App};
use crate::config::{Config, Error};
use crate::debuginfo::{Debuginfo, FolderFiles, ObjectFiles};
use crate::ingest::policy::Policy;
use crate::ingest::writer::{Writer, WriterConfig};
use crate::metrics::Metrics;
use crate::query::engine::Engine;
use crate::store::cache::Cache;
use crate::store::catalog::Catalog;
use crate::store::disk::{Disk, LocalDisk};
use crate::store::maintain::Maintainer;
use crate::store::recover::{self, Index, Progress};
#[cfg(feature = "s3")]
use crate::{debuginfo::StoreFiles, store::objects::ObjectDisk};

/// A group commit waits at most so long, whatever is configured.
const MAX_LINGER: Duration = Duration::from_millis(500);

/// The server.
pub struct Server;

/// A running server. Dropping it leaves it running; call [`Running::shutdown`].
pub struct Running {
    local_addr: SocketAddr,
    stop_http: Option<oneshot::Sender<()>>,
    http: tokio::task::JoinHandle<()>,
    threads: Vec<JoinHandle<()>>,
    writer: Arc<Writer>,
    debuginfo: Arc<Debuginfo>,
    stopping: Arc<AtomicBool>,
    _lock: File,
}

impl Server {
    /// Listens, then reads what is on disk in the background: `/ready` and `/api/v1/status` say
    /// how far that is.
    ///
    /// # Errors
    /// When the address or the folder cannot be used, see [`Error`].
    pub async fn start(config: Config) -> Result<Running, Error> {
        if !config.allow_public && !config.listen.ip().is_loopback() {
            return Err(Error::PublicAddress(config.listen));
        }
        let folder = config.data_dir.clone();
        let lock = lock_folder(&folder)?;
        let disk = disk(&config).await?;
        let debuginfo = debuginfo(&config).await?;
        let listener = TcpListener::bind(config.listen).await;
        let listener = listener.map_err(|cause| Error::Listen {
            address: config.listen,
            cause,
        })?;
        let local_addr = listener.local_addr().map_err(|cause| Error::Listen {
            address: config.listen,
            cause,
        })?;
        let app = app(&config, disk, debuginfo.clone());
        let stopping = Arc::new(AtomicBool::new(false));
        let threads = vec![
            thread("segment-writer", {
                let writer = app.writer.clone();
                move || writer.run()
            })?,
            thread(
                "store",
                store_thread(&config, app.clone(), stopping.clone()),
            )?,
            thread("debuginfo", {
                let debuginfo = debuginfo.clone();
                move || debuginfo.run()
            })?,
        ];
        let (stop_http, stopped) = oneshot::channel::<()>();
        let router = api::router(app.clone(), config.extra_router);
        let http = tokio::spawn(async move {
            let router = router.into_make_service_with_connect_info::<SocketAddr>();
            let served = axum::serve(listener, router).with_graceful_shutdown(async {
                let _ = stopped.await;
            });
            if let Err(error) = served.await {
                eprintln!("pilotlight: the HTTP server ended: {error}");
            }
        });
        let writer = app.writer.clone();
        let stop_http = Some(stop_http);
        Ok(Running {
            local_addr,
            stop_http,
            http,
            threads,
            writer,
            debuginfo,
            stopping,
            _lock: lock,
        })
    }
}

impl Running {
    /// Address in use.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops taking requests, answers those under way (for at most 5 s), writes the open segment.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop_http.take() {
            let _ = stop.send(());
        }
        self.stopping.store(true, Relaxed);
        if tokio::time::timeout(Duration::from_secs(5), &mut self.http)
            .await
            .is_err()
        {
            self.http.abort();
        }
        self.writer.stop();
        self.debuginfo.stop();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
        let _ = joined.await;
    }
}

/// Where the data is.
pub async fn disk(config: &Config) -> Result<Arc<dyn Disk>, Error> {
    if let Some(disk) = &config.disk {
        return Ok(disk.clone());
    }
    #[cfg(feature = "s3")]
    if let Some(s3) = config.s3.clone() {
        let place = format!("{}/{}", s3.bucket, s3.prefix);
        let (runtime, random) = (Handle::current(), config.env.random());
        let opened = tokio::task::spawn_blocking(move || ObjectDisk::open(&s3, runtime, random));
        let opened = opened.await.map_err(std::io::Error::other);
        return match opened.and_then(|opened| opened) {
            Ok(disk) => Ok(Arc::new(disk)),
            Err(cause) => Err(Error::ObjectStore { place, cause }),
        };
    }
    match LocalDisk::open(&config.data_dir, Handle::current()) {
        Ok(disk) => Ok(Arc::new(disk)),
        Err(cause) => Err(Error::DataDir {
            folder: config.data_dir.clone(),
            cause,
        }),
    }
}

/// Where debug information is: beside the data.
async fn debuginfo(config: &Config) -> Result<Arc<Debuginfo>, Error> {
    let folder = config.data_dir.join("debuginfo");
    let failed = |cause| Error::DataDir {
        folder: config.data_dir.clone(),
        cause,
    };
    #[cfg(feature = "s3")]
    if let (Some(s3), None) = (&config.s3, &config.disk) {
        let place = format!("{}/{}", s3.bucket, s3.prefix);
        let copies = folder.join("copies");
        let opened = crate::store::objects::connect(s3)
            .and_then(|store| StoreFiles::open(store, &s3.prefix, copies, Handle::current()));
        let files = opened.map_err(|cause| Error::ObjectStore { place, cause })?;
        return debuginfo_over(config, Arc::new(files)).map_err(failed);
    }
    let files = FolderFiles::open(folder.join("files")).map_err(failed)?;
    debuginfo_over(config, Arc::new(files)).map_err(failed)
}

fn debuginfo_over(config: &Config, files: Arc<dyn ObjectFiles>) -> std::io::Result<Arc<Debuginfo>> {
    let scratch = config.data_dir.join("debuginfo/uploads");
    let (settings, env) = (config.debuginfo.clone(), config.env.clone());
    Debuginfo::open(files, scratch, settings, env).map(Arc::new)
}

/// One process at a time.
pub fn lock_folder(folder: &Path) -> Result<File, Error> {
    let failed = |cause| Error::DataDir {
        folder: folder.to_owned(),
        cause,
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let lock = File::create(folder.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(folder.to_owned())),
        Err(TryLockError::Error(cause)) => Err(failed(cause)),
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(Error::Thread)
}

fn app(config: &Config, disk: Arc<dyn Disk>, debuginfo: Arc<Debuginfo>) -> Arc<App> {
    let metrics = Arc::new(Metrics::default());
    let catalog = Arc::new(Catalog::default());
    let writer_config = WriterConfig {
        linger: config.linger.min(MAX_LINGER),
        full_bytes: config.head_bytes / 4,
        ids: config.remembered_pushes,
        epoch_bytes: config.maintenance.as_ref().map_or(0, |_| config.head_bytes),
    };
    let writer = Arc::new(Writer::new(
        writer_config,
        config.env.clone(),
        disk.clone(),
        catalog.clone(),
        metrics.clone(),
    ));
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    let engine = Engine {
        disk,
        catalog,
        cache: Cache::new(config.cache_bytes),
        debuginfo,
        metrics,
        recovering: Mutex::new(Some("not begun".to_owned())),
        cores,
    };
    let kept_for = config.maintenance.as_ref().and_then(|rules| rules.max_age);
    Arc::new(App {
        engine,
        writer,
        policy: Policy::new(config.ingest.clone(), kept_for),
        progress: Progress::default(),
        env: config.env.clone(),
        limits: config.limits.clone(),
        budget: Arc::new(Semaphore::new(config.head_bytes / 1024)),
        budget_kib: (config.head_bytes / 1024) as u32,
        decoders: Arc::new(Semaphore::new(cores + 1)),
        queries: api::fair::Fair::new(cores + 1, config.query.waiting),
        query_limits: Arc::new(config.query.clone()),
        targets: config.targets.clone(),
        extra_metrics: config.extra_metrics.clone(),
        guard_host: !config.allow_public,
    })
}

/// Recovery, then maintenance and the index, until the server stops.
fn store_thread(
    config: &Config,
    app: Arc<App>,
    stopping: Arc<AtomicBool>,
) -> impl FnOnce() + Send + 'static {
    let index_folder = config.data_dir.join("index");
    let (rebuild, ids) = (config.rebuild_index, config.remembered_pushes);
    let env = config.env.clone();
    let maintainer = config.maintenance.clone().map(|rules| Maintainer {
        rules,
        env: env.clone(),
        disk: app.engine.disk.clone(),
        catalog: app.engine.catalog.clone(),
        metrics: app.engine.metrics.clone(),
        writer: Some(app.writer.clone()),
        age: Mutex::default(),
    });
    move || {
        let (engine, progress) = (&app.engine, &app.progress);
        let (mut index, headers) = Index::open(index_folder, rebuild, progress);
        let mut headers = Some(headers);
        while let Err(error) = recover::catalog(
            &*engine.disk,
            &engine.catalog,
            headers.take().unwrap_or_default(),
            env.now_ns(),
            progress,
        ) {
            engine.set_recovering(Some(format!("the segments cannot be listed: {error}")));
            if stopping.load(Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        recover::identities(&*engine.disk, &engine.catalog, &app.writer, ids);
        engine.set_recovering(None);
        progress.done.store(true, Relaxed);
        while !stopping.load(Relaxed) {
            if let Some(maintainer) = &maintainer
                && catch_unwind(AssertUnwindSafe(|| maintainer.round())).is_err()
            {
                eprintln!("pilotlight: a round of maintenance panicked; please report it");
            }
            index.sync(&engine.catalog, progress);
            for _ in 0..10 {
                if !stopping.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        index.sync(&engine.catalog, progress);
        index.flush();
    }
}

impl Engine {
    fn set_recovering(&self, state: Option<String>) {
        *self
            .recovering
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = state;
    }
}
