//! Starting, wiring and stopping.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_wire::serve::tls::Tls;
use pilotlight_wire::serve::{Edge, serve, service_fn};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::access::audit::Audit;
use crate::access::cors::Cors;
use crate::access::front::{Front, Refused};
use crate::access::oidc::Verifier;
use crate::access::tenants;
use crate::access::{Access, DEFAULT_TENANT};
use crate::api::fair::Fair;
use crate::api::{self, App};
use crate::config::{Config, Error};
use crate::debuginfo::{Debuginfo, FolderFiles, ObjectFiles};
use crate::ingest::policy::Policy;
use crate::ingest::writer::{Writer, WriterConfig};
use crate::log;
use crate::metrics::Metrics;
use crate::query::engine::Engine;
use crate::store::cache::Cache;
use crate::store::catalog::Catalog;
use crate::store::disk::{Disk, LocalDisk};
use crate::store::identities::IdentityFile;
use crate::store::maintain::Maintainer;
use crate::store::recover::{self, Index, Progress};
use crate::store::sharing::Sharing;
#[cfg(feature = "s3")]
use crate::{debuginfo::StoreFiles, store::objects::ObjectDisk};

/// Answers under way may take so long once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// A group commit waits at most so long, whatever is configured.
const MAX_LINGER: Duration = Duration::from_millis(500);

/// The server.
pub struct Server;

/// A running server. Dropping it leaves it running; call [`Running::shutdown`].
pub struct Running {
    local_addr: SocketAddr,
    inner_addr: Option<SocketAddr>,
    stop_http: watch::Sender<bool>,
    http: Vec<tokio::task::JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    writers: Vec<Arc<Writer>>,
    debuginfos: Vec<Arc<Debuginfo>>,
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
        if config.access.is_open() && !config.allow_public && !config.listen.ip().is_loopback() {
            return Err(Error::PublicAddress(config.listen));
        }
        let mut edge = Edge::default();
        edge.stop_timeout = STOP_TIMEOUT;
        edge.tls = config.tls.clone().map(Tls::open).transpose()?;
        let lock = lock_folder(&config.data_dir)?;
        let stores = tenants::of(&config)?;
        let (listener, local_addr) = bind(config.listen).await?;
        let inner = match config.inner_port {
            true => Some(bind((Ipv4Addr::LOCALHOST, 0).into()).await?),
            false => None,
        };
        let inner_addr = inner.as_ref().map(|(_, address)| *address);
        let stopping = Arc::new(AtomicBool::new(false));
        let (mut apps, mut threads) = (Vec::new(), Vec::new());
        let mut debuginfos = Vec::new();
        // One line for all: a tenant's flood takes turns with the others.
        let queries = Fair::new(cores() + 1, config.query.waiting);
        for (tenant, own) in stores {
            let debuginfo = debuginfo(&own).await?;
            let (disk, stopping) = (disk(&own).await?, stopping.clone());
            let app = app(
                &own,
                disk,
                debuginfo.clone(),
                queries.clone(),
                stopping.clone(),
            );
            let writer = app.writer.clone();
            threads.push(thread("segment-writer", move || writer.run())?);
            let store = store_thread(&own, app.clone(), stopping.clone());
            threads.push(thread("store", store)?);
            debuginfos.push(debuginfo.clone());
            if own.debuginfo.sources.any() {
                let (sources, runtime) = (debuginfo.clone(), Handle::current());
                let look = move || sources.run_sources(&runtime);
                threads.push(thread("debuginfo-sources", look)?);
            }
            threads.push(thread("debuginfo", move || debuginfo.run())?);
            apps.push((tenant, app));
        }
        let writers = apps.iter().map(|(_, app)| app.writer.clone()).collect();
        let front = Arc::new(front(&config, apps)?);
        let stop_http = watch::Sender::new(false);
        let answering = |listener, edge| {
            let front = front.clone();
            let mut stop = stop_http.subscribe();
            let service = service_fn(move |request| front.clone().answer(request));
            tokio::spawn(serve(listener, edge, service, async move {
                let _ = stop.wait_for(|stop| *stop).await;
            }))
        };
        let mut http = Vec::new();
        if let Some((inner, _)) = inner {
            let mut plain = edge.clone();
            plain.tls = None;
            http.push(answering(inner, plain));
        }
        http.push(answering(listener, edge));
        Ok(Running {
            local_addr,
            inner_addr,
            stop_http,
            http,
            threads,
            writers,
            debuginfos,
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

    /// The address without TLS, where [`Config::inner_port`] asked for one.
    pub fn inner_addr(&self) -> SocketAddr {
        self.inner_addr.unwrap_or(self.local_addr)
    }

    /// Stops taking requests, answers those under way (for at most 5 s), writes the open segment.
    pub async fn shutdown(mut self) {
        let _ = self.stop_http.send(true);
        self.stopping.store(true, Relaxed);
        for mut http in std::mem::take(&mut self.http) {
            let ended = tokio::time::timeout(2 * STOP_TIMEOUT, &mut http).await;
            if ended.is_err() {
                http.abort();
            }
        }
        self.writers.iter().for_each(|writer| writer.stop());
        self.debuginfos
            .iter()
            .for_each(|debuginfo| debuginfo.stop());
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
        let _ = joined.await;
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |cause| Error::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
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

/// What answers, over the stores of all tenants.
fn front(config: &Config, apps: Vec<(String, Arc<App>)>) -> Result<Front, Error> {
    let audit = config.access.audit_file.as_deref().map(|file| {
        Audit::open(file).map_err(|cause| Error::Audit {
            file: file.to_owned(),
            cause,
        })
    });
    let oidc = config.access.oidc.clone().map(Verifier::new);
    let router = |(tenant, app): &(String, Arc<App>)| {
        // The program's own routes belong to the operator.
        let extra = config.extra_router.clone();
        let extra = extra.filter(|_| tenant == DEFAULT_TENANT);
        (tenant.clone(), api::router(app.clone(), extra))
    };
    let names = apps.iter().map(|(tenant, _)| tenant.clone()).collect();
    Ok(Front {
        access: Access::new(&config.access, names),
        routers: apps.iter().map(router).collect(),
        apps,
        oidc: oidc.transpose().map_err(Error::Oidc)?,
        audit: audit.transpose()?,
        cors: Cors(config.access.cors_origins.clone()),
        env: config.env.clone(),
        refused: Refused::default(),
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get())
}

fn app(
    config: &Config,
    disk: Arc<dyn Disk>,
    debuginfo: Arc<Debuginfo>,
    queries: Arc<Fair>,
    stopping: Arc<AtomicBool>,
) -> Arc<App> {
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
    let cores = cores();
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
        stopping,
        env: config.env.clone(),
        limits: config.limits.clone(),
        budget: Arc::new(Semaphore::new(config.head_bytes / 1024)),
        budget_kib: (config.head_bytes / 1024) as u32,
        decoders: Arc::new(Semaphore::new(cores + 1)),
        queries,
        query_limits: Arc::new(config.query.clone()),
        targets: config.targets.clone(),
        extra_metrics: config.extra_metrics.clone(),
        guard_host: !config.allow_public && config.access.is_open(),
    })
}

/// Recovery, then maintenance and the index, until the server stops.
fn store_thread(
    config: &Config,
    app: Arc<App>,
    stopping: Arc<AtomicBool>,
) -> impl FnOnce() + Send + 'static {
    let index_folder = config.data_dir.join("index");
    let rebuild = config.rebuild_index;
    let (path, limit) = (config.data_dir.join("identities"), config.remembered_pushes);
    let mut identities = IdentityFile::new(path, limit, rebuild);
    let env = config.env.clone();
    let maintainer = config.maintenance.clone().map(|rules| Maintainer {
        rules,
        env: env.clone(),
        disk: app.engine.disk.clone(),
        catalog: app.engine.catalog.clone(),
        metrics: app.engine.metrics.clone(),
        writer: Some(app.writer.clone()),
        age: Mutex::default(),
        sharing: Sharing::default(),
    });
    move || {
        let (engine, progress) = (&app.engine, &app.progress);
        // Neither needs the other, and each is half of a start over many blocks.
        let (opened, listed) = std::thread::scope(|scope| {
            let listing = scope.spawn(|| engine.disk.list());
            let opened = Index::open(index_folder, rebuild, progress);
            (opened, listing.join())
        });
        let (mut index, mut headers) = opened;
        let panicked = |_| Err(std::io::Error::other("listing the files panicked"));
        let mut listed = listed.unwrap_or_else(panicked);
        while let Err(error) = listed.map(|files| {
            let (disk, headers) = (&*engine.disk, std::mem::take(&mut headers));
            recover::fill(
                disk,
                &engine.catalog,
                files,
                headers,
                env.now_ns(),
                progress,
            );
        }) {
            engine.set_recovering(Some(format!("the segments cannot be listed: {error}")));
            if stopping.load(Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
            listed = engine.disk.list();
        }
        identities.recall(&*engine.disk, &engine.catalog, &app.writer, progress);
        engine.set_recovering(None);
        progress.done.store(true, Relaxed);
        while !stopping.load(Relaxed) {
            if let Some(maintainer) = &maintainer
                && catch_unwind(AssertUnwindSafe(|| maintainer.round())).is_err()
            {
                log::error("a round of maintenance panicked; please report it", &[]);
            }
            index.sync(&engine.catalog, progress);
            identities.sync(&*engine.disk, &engine.catalog);
            for _ in 0..10 {
                if !stopping.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        index.sync(&engine.catalog, progress);
        identities.sync(&*engine.disk, &engine.catalog);
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
