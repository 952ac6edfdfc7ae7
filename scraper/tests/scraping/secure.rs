//! Targets that speak TLS.

use http_body_util::Full;
use pilotlight_scraper::{Cause, Config, ScrapeConfig, Scraper};
use pilotlight_wire::Bytes;
use pilotlight_wire::serve::tls::{Tls, TlsFiles};
use pilotlight_wire::serve::{Edge, Incoming, serve, service_fn};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;

use super::{sink, status};
use crate::common::{options, profile, run, until};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/tls")
}

/// Answers any request of a client with a certificate with a profile.
async fn target() -> String {
    let file = |name: &str| fixtures().join(name);
    let service = service_fn(|_: http::Request<Incoming>| async {
        let body = Full::new(Bytes::from(profile(3, 1)));
        Ok::<_, Infallible>(http::Response::new(body))
    });
    let mut edge = Edge::default();
    edge.tls = Some(
        Tls::open(TlsFiles {
            certificate: file("first.pem"),
            key: file("first.key"),
            client_authority: None,
        })
        .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve(listener, edge, service, std::future::pending()));
    address
}

fn job(name: &str, target: &str, tls: &str) -> ScrapeConfig {
    let text = format!(
        "scrape_configs: [{{job_name: {name}, scrape_interval: 1s, scheme: https, tls_config: {{{tls}}}, \
         static_configs: [{{targets: [\"{target}\"]}}], \
         profiling_config: {{pprof_config: {{process_cpu: {{enabled: false}}, goroutine: {{}}}}}}}}]"
    );
    let config = Config::parse(&text, &fixtures().join("x.yaml"), &[]).unwrap();
    config.scrape_configs.into_iter().next().unwrap()
}

#[test]
fn a_target_is_scraped_over_tls_when_its_certificate_is_right() {
    run(async {
        let server = sink().await;
        let (good, bad) = (target().await, target().await);
        let jobs = vec![
            job(
                "good",
                &good,
                "ca_file: authority.pem, server_name: localhost",
            ),
            job("bad", &bad, "ca_file: second.pem"),
        ];
        let handle = Scraper::start(jobs, options(server.url()));
        let pushed = server.until(1).await;
        assert_eq!(pushed[0].body, profile(3, 1));
        let done = until("good scrape", || {
            Some(status(&handle, &good)).filter(|status| status.good > 0)
        });
        assert_eq!(done.await.samples, 3);
        // On a busy machine a scrape may also be late.
        let refused = until("refused certificate", || match status(&handle, &bad).last {
            Some(Err(failure)) if failure.text.contains("certificate") => Some(failure),
            _ => None,
        });
        let refused = refused.await;
        assert_eq!(refused.cause, Cause::Wire);
        let text = refused.text;
        assert!(text.contains(&format!("https://{bad}/")), "{text}");
        assert_eq!(status(&handle, &bad).good, 0);
        handle.stop(Duration::from_secs(1)).await;
    });
}
