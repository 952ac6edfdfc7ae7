//! The same requests to a running Pyroscope or Parca, and the same questions. Only what a client
//! sees is measured: requests a second and the time of an answer.

use std::{thread, time::Instant};

use super::{
    corpus::{Corpus, Push},
    questions::middle,
};
use crate::{
    child::Outcome,
    server::http::{Client, encode},
};

/// Sends the load to the peers that were named.
pub fn run(corpus: &Corpus, pyroscope: Option<&str>, parca: Option<&str>) -> Outcome<()> {
    if let Some(url) = pyroscope {
        let push = |push: &Push| {
            let name = encode(&format!("process_cpu{}", push.series));
            let (from, until) = (push.start_s, push.start_s + 10);
            let target = format!("/ingest?name={name}&from={from}&until={until}&format=pprof");
            (target, push.body.clone())
        };
        one("pyroscope", url, corpus, push, &render(corpus))?;
    }
    if let Some(url) = parca {
        one("parca", url, corpus, write_raw, &merge(corpus))?;
    }
    Ok(())
}

/// Pyroscope's flame graph.
fn render(corpus: &Corpus) -> String {
    let query = format!(
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds{{service_name=\"{}\"}}",
        corpus.service.0
    );
    let (query, (from, until)) = (encode(&query), corpus.window);
    format!("/pyroscope/render?query={query}&from={from}&until={until}&format=json&max-nodes=8192")
}

/// Parca's push: the HTTP form of `ProfileStoreService.WriteRaw`.
fn write_raw(push: &Push) -> (String, Vec<u8>) {
    let inside = push.series.trim_start_matches('{').trim_end_matches('}');
    let mut labels = vec![r#"{"name":"__name__","value":"process_cpu"}"#.to_owned()];
    for pair in inside.split(',') {
        if let Some((name, value)) = pair.split_once('=') {
            labels.push(format!(r#"{{"name":"{name}","value":{value}}}"#));
        }
    }
    let (labels, raw) = (labels.join(","), base64(&push.body));
    let body = format!(
        r#"{{"normalized":false,"series":[{{"labels":{{"labels":[{labels}]}},"samples":[{{"rawProfile":"{raw}"}}]}}]}}"#
    );
    ("/api/profiles/writeraw".to_owned(), body.into_bytes())
}

/// Parca's flame graph.
fn merge(corpus: &Corpus) -> String {
    let query = format!(
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds{{service_name=\"{}\"}}",
        corpus.service.0
    );
    let (query, (from, until)) = (encode(&query), corpus.window);
    format!(
        "/api/profiles/query?mode=MODE_MERGE&merge.query={query}&merge.start={}&merge.end={}\
         &reportType=REPORT_TYPE_FLAMEGRAPH_ARROW",
        encode(&time(from)),
        encode(&time(until))
    )
}

/// RFC 3339 of Unix seconds.
fn time(seconds: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Civil from days: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= chunk.len() { digit.into() } else { '=' });
        }
    }
    out
}

fn one(
    name: &str,
    url: &str,
    corpus: &Corpus,
    request: impl Fn(&Push) -> (String, Vec<u8>) + Copy + Sync,
    question: &str,
) -> Outcome<()> {
    let begun = Instant::now();
    let mut waits = send(url, corpus, request)?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = waits.len();
    println!(
        "# {name}: {count} profiles, {} samples in {seconds:.1} s, an answer after {:.1} ms (middle)",
        corpus.samples,
        middle(std::mem::take(&mut waits))
    );
    let mut client = Client::connect_to(url)?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let sent = Instant::now();
        let answer = client.request("GET", question, b"")?;
        if answer.status != 200 {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(format!("{name}: {question}: {} {text}", answer.status).into());
        }
        times.push(sent.elapsed().as_secs_f64() * 1e3);
        println!("# {name}: flame graph of {} B", answer.body.len());
    }
    println!(
        "# {name}: flame graph after {:.1} ms (middle)",
        middle(times)
    );
    Ok(())
}

fn send(
    url: &str,
    corpus: &Corpus,
    request: impl Fn(&Push) -> (String, Vec<u8>) + Copy + Sync,
) -> Outcome<Vec<f64>> {
    let send_all = |pushes: &[Push]| -> Result<Vec<f64>, String> {
        let mut client = Client::connect_to(url).map_err(|error| error.to_string())?;
        let mut waits = Vec::new();
        for push in pushes {
            let (target, body) = request(push);
            let sent = Instant::now();
            let answer = client.request("POST", &target, &body);
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status / 100 != 2 {
                return Err(String::from_utf8_lossy(&answer.body).into_owned());
            }
            waits.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        Ok(waits)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = corpus
            .pushes
            .iter()
            .map(|pushes| scope.spawn(move || send_all(pushes)))
            .collect();
        let mut waits = Vec::new();
        for worker in workers {
            waits.extend(worker.join().map_err(|_| "a worker died")??);
        }
        Ok(waits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bytes_are_written_as_others_read_them() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(time(1_795_910_399), "2026-11-28T23:59:59Z");
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
