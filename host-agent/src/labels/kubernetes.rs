//! Which pod a container belongs to, by the list of pods of the kubelet (`/pods`) or of the API server
//! (`/api/v1/pods?fieldSelector=spec.nodeName=NODE`): both answer a `PodList`.

use super::text;
use pilotlight_labels::Labels;
use pilotlight_wire::{Authorization, Call, Client, TlsClient, Url};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bytes of one list.
const LIST_BYTES: u64 = 64 << 20;
/// Containers of one node; kubelets start some hundred.
const CONTAINERS: usize = 16_384;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where pods are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesOptions {
    /// The whole URL of the list.
    pub pods_url: Url,
    /// The token to show, read anew for each question: it changes.
    pub token_file: Option<PathBuf>,
    /// Whom to trust, and what to show.
    pub tls: TlsClient,
    /// Time between two questions.
    pub interval: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Container {
    namespace: String,
    pod: String,
    container: String,
    node: String,
}

/// Pods by the ids of their containers.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    containers: Mutex<Arc<HashMap<String, Container>>>,
    error: Mutex<Option<String>>,
}

impl Pods {
    /// Sets `namespace`, `pod`, `container` and `node` of what runs in a container that is known.
    pub fn label(&self, labels: &mut Labels) {
        let containers = self.containers();
        let found = labels.get("container_id").and_then(|id| containers.get(id));
        let Some(found) = found.cloned() else {
            return;
        };
        labels.set("namespace", found.namespace);
        labels.set("pod", found.pod);
        labels.set("container", found.container);
        labels.set("node", found.node);
    }

    /// Why the last question was not answered.
    pub fn error(&self) -> Option<String> {
        let error = self.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn containers(&self) -> Arc<HashMap<String, Container>> {
        let containers = self.containers.lock();
        Arc::clone(&containers.unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks again and again, on the current tokio runtime.
    pub fn follow(self: Arc<Self>, options: KubernetesOptions) -> JoinHandle<()> {
        tokio::spawn(async move {
            let token = options
                .token_file
                .map(|file| Authorization::file("Bearer", file));
            let client = Client::new().with_tls(options.tls).authorized(token);
            loop {
                let asked = ask(&client, &options.pods_url).await;
                let (containers, error) = match asked {
                    Ok(containers) => (Some(containers), None),
                    Err(error) => (None, Some(error)),
                };
                // Without an answer those known before stay: pods do not move.
                if let Some(containers) = containers {
                    let known = self.containers.lock();
                    *known.unwrap_or_else(PoisonError::into_inner) = Arc::new(containers);
                }
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
                tokio::time::sleep(options.interval).await;
            }
        })
    }
}

async fn ask(client: &Client, url: &Url) -> Result<HashMap<String, Container>, String> {
    let call = Call::get(url.clone()).timeout(TIMEOUT).max_body(LIST_BYTES);
    let answer = client.send(call).await.and_then(|answer| answer.success());
    let answer = answer.map_err(|error| error.to_string())?;
    parse(&answer.body).ok_or_else(|| format!("{url}: no list of pods"))
}

/// Of a `PodList`.
fn parse(bytes: &[u8]) -> Option<HashMap<String, Container>> {
    let list: Value = serde_json::from_slice(bytes).ok()?;
    let mut containers = HashMap::new();
    // Some servers write null for a list of none.
    let pods = list.get("items")?.as_array().into_iter().flatten();
    for pod in pods {
        let word =
            |part: &str, key: &str| text(pod[part][key].as_str().unwrap_or_default().as_bytes());
        let lists = [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ];
        let statuses = lists.iter().filter_map(|key| pod["status"][key].as_array());
        for status in statuses.flatten() {
            let id = status["containerID"]
                .as_str()
                .and_then(|id| id.split_once("://"));
            if let Some((_runtime, id)) = id
                && containers.len() < CONTAINERS
            {
                let container = Container {
                    namespace: word("metadata", "namespace"),
                    pod: word("metadata", "name"),
                    container: text(status["name"].as_str().unwrap_or_default().as_bytes()),
                    node: word("spec", "nodeName"),
                };
                containers.insert(id.to_owned(), container);
            }
        }
    }
    Some(containers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const LIST: &str = r#"{"kind":"PodList","items":[
        {"metadata":{"name":"web-7f","namespace":"shop"},"spec":{"nodeName":"n1"},"status":{
            "containerStatuses":[{"name":"app","containerID":"containerd://FIRST"},{"name":"side"}],
            "initContainerStatuses":[{"name":"init","containerID":"cri-o://SECOND"}]}},
        {"metadata":{"name":"pending"},"status":{"containerStatuses":null}}, 7]}"#;

    fn list() -> String {
        let ids = ("a".repeat(64), "b".repeat(64));
        LIST.replace("FIRST", &ids.0).replace("SECOND", &ids.1)
    }

    #[test]
    fn containers_of_all_kinds_are_found_and_forged_lists_are_none() {
        let found = parse(list().as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        let app = &found[&"a".repeat(64)];
        assert_eq!(
            (app.pod.as_str(), app.container.as_str()),
            ("web-7f", "app")
        );
        assert_eq!(found[&"b".repeat(64)].container, "init");
        assert_eq!(
            parse(br#"{"items":null}"#).map(|found| found.len()),
            Some(0)
        );
        for forged in [&b""[..], b"{}", b"[]", b"{\"items\":[", b"\xff"] {
            assert!(parse(forged).is_none());
        }
    }

    /// Answers each connection with a status and a body, and hands back what it was asked.
    fn fake(answers: Vec<(u16, String)>) -> (Url, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!(
            "http://{}/api/v1/pods?fieldSelector=x",
            listener.local_addr().unwrap()
        );
        let serve = move || {
            let answer = |(status, body): (u16, String)| {
                let mut stream = listener.accept().unwrap().0;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                let length = body.len();
                let head_out = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all((head_out + &body).as_bytes()).unwrap();
                String::from_utf8(head).unwrap()
            };
            answers.into_iter().map(answer).collect()
        };
        (Url::parse(&url).unwrap(), std::thread::spawn(serve))
    }

    #[test]
    fn a_process_gets_the_labels_of_its_pod_and_keeps_them_while_nobody_answers() {
        let (pods_url, server) = fake(vec![(200, list()), (500, String::new())]);
        let token = std::env::temp_dir().join(format!("pilotlight-token-{}", std::process::id()));
        std::fs::write(&token, "secret\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let pods = Arc::new(Pods::default());
        let options = KubernetesOptions {
            pods_url,
            token_file: Some(token.clone()),
            tls: TlsClient::default(),
            interval: Duration::from_millis(50),
        };
        runtime.block_on(async {
            let task = Arc::clone(&pods).follow(options);
            while pods.error().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            task.abort();
        });
        let heads = server.join().unwrap();
        let asked = heads[0].to_ascii_lowercase();
        assert!(
            asked.contains("get /api/v1/pods?fieldselector=x ")
                && asked.contains("bearer secret\r\n"),
            "{asked}"
        );
        let mut labels = Labels::default();
        labels.set("container_id", "a".repeat(64));
        pods.label(&mut labels);
        let found: Vec<_> = labels
            .iter()
            .filter(|(name, _)| *name != "container_id")
            .collect();
        let expected = [
            ("container", "app"),
            ("namespace", "shop"),
            ("node", "n1"),
            ("pod", "web-7f"),
        ];
        assert_eq!(found, expected);
        let mut other = Labels::default();
        other.set("container_id", "c".repeat(64));
        pods.label(&mut other);
        assert_eq!(other.iter().count(), 1);
        std::fs::remove_file(token).unwrap();
    }

    /// A program that ends with its test.
    struct Ended(std::process::Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const SECURE: &str = r#"
import http.server, ssl, sys
class Pods(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.headers.get("authorization") == "Bearer secret"
        body = sys.argv[3].encode()
        self.send_response(200 if allowed else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Pods)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

    #[test]
    fn a_server_of_pods_is_asked_by_tls_and_only_one_that_is_trusted() {
        let certificates =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/tls");
        let mut server = std::process::Command::new("python3");
        let files = ["first.pem", "first.key"].map(|name| certificates.join(name));
        server.args(["-c", SECURE]).args(files).arg(list());
        let server = server.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut server = Ended(server);
        let mut line = String::new();
        let mut out = std::io::BufReader::new(server.0.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let url = Url::parse(&format!("https://localhost:{}/pods", line.trim())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let asked = |ca_file: Option<PathBuf>, token: &str| {
            let tls = TlsClient {
                ca_file,
                ..TlsClient::default()
            };
            let token = Authorization::bearer(token.to_owned());
            let client = Client::new().with_tls(tls).authorized(Some(token));
            runtime.block_on(ask(&client, &url))
        };
        let authority = certificates.join("authority.pem");
        assert_eq!(asked(Some(authority.clone()), "secret").unwrap().len(), 2);
        let refused = asked(Some(authority), "other").unwrap_err();
        assert!(refused.contains("401"), "{refused}");
        let untrusted = asked(None, "secret").unwrap_err();
        assert!(untrusted.contains("ertificate"), "{untrusted}");
    }
}
