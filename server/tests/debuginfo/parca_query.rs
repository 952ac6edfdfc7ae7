//! Parca's query service by a gRPC client of a few lines.

use prost::Message;

use super::parca::call;
use super::parca_words::*;
use super::*;

const QUERY: &str = "parca.query.v1alpha1.QueryService";
const CPU: &str = "cpu:cpu:nanoseconds:cpu:nanoseconds";

fn at(seconds: i64) -> Option<Time> {
    let seconds = T0 / SECOND + seconds;
    Some(Time { seconds, nanos: 0 })
}

fn merge(query: &str, from_s: i64, until_s: i64) -> Option<Merge> {
    Some(Merge {
        query: query.to_owned(),
        start: at(from_s),
        end: at(until_s),
    })
}

fn report(report: i32) -> Asked {
    Asked {
        merge: merge(
            &format!("process_{CPU}:delta{{service_name=\"s\"}}"),
            -60,
            60,
        ),
        report,
        ..Asked::default()
    }
}

/// Function names of the only path down.
fn path(graph: &Graph) -> Vec<&str> {
    let mut nodes = &graph.root.as_ref().unwrap().children;
    let mut names = Vec::new();
    while let [node] = &nodes[..] {
        let location = node.meta.as_ref().unwrap().location as usize - 1;
        let function = graph.locations[location].lines[0].function as usize - 1;
        names.push(graph.strings[graph.functions[function].string as usize].as_str());
        nodes = &node.children;
    }
    names
}

#[test]
fn parcas_clients_ask_for_types_labels_lines_and_reports() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let nothing: Yes = runtime
        .block_on(call(
            server.address,
            &format!("{QUERY}/HasProfileData"),
            &[Words::default()],
        ))
        .unwrap();
    assert!(!nothing.yes);
    let profile = addresses(&built, &built.build_id);
    assert_eq!(
        push(server.address, r#"{service_name="s"}"#, &profile).status,
        200
    );
    upload(server.address, &built.debug);
    let named = ["", "main", "leaf", "square"];
    wait_for("names", || names(server.address) == named);
    runtime.block_on(lists(server.address));
    runtime.block_on(reports(server.address));

    // The same words as Connect sends them.
    let head = "Content-Type: application/proto\r\n";
    let body = report(2).encode_to_vec();
    let answer = try_request(
        server.address,
        "POST",
        &format!("/{QUERY}/Query"),
        head,
        &body,
    )
    .unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(Answer::decode(&answer.body[..]).unwrap().total, 3 * SECOND);
    let head = "Content-Type: application/json\r\n";
    let answer = try_request(
        server.address,
        "POST",
        &format!("/{QUERY}/Query"),
        head,
        b"{}",
    )
    .unwrap();
    assert_eq!(answer.status, 415);
    server.stop();
}

async fn lists(server: SocketAddr) {
    let method = |name: &str| format!("{QUERY}/{name}");
    let has: Yes = call(server, &method("HasProfileData"), &[Words::default()])
        .await
        .unwrap();
    assert!(has.yes);
    let types: Types = call(server, &method("ProfileTypes"), &[Words::default()])
        .await
        .unwrap();
    let [only] = &types.types[..] else {
        panic!("{types:?}");
    };
    assert_eq!(
        (&only.name[..], &only.sample_unit[..], only.delta),
        ("process_cpu", "nanoseconds", true)
    );
    let labels: Words = call(server, &method("Labels"), &[Words::default()])
        .await
        .unwrap();
    assert!(
        labels.words.contains(&"service_name".to_owned()),
        "{labels:?}"
    );
    let values = |selector: &str| Values {
        label_name: "service_name".to_owned(),
        matching: vec![selector.to_owned()],
    };
    let known: Words = call(
        server,
        &method("Values"),
        &[values("{service_name!=\"x\"}")],
    )
    .await
    .unwrap();
    assert_eq!(known.words, ["s"]);
    let none: Words = call(server, &method("Values"), &[values("{service_name=\"x\"}")])
        .await
        .unwrap();
    assert!(none.words.is_empty());
    let range = RangeOf {
        query: format!("process_{CPU}:delta{{}}"),
        start: at(-60),
        end: at(60),
        step: Some(Time {
            seconds: 10,
            nanos: 0,
        }),
    };
    let range: Range = call(server, &method("QueryRange"), &[range]).await.unwrap();
    let [line] = &range.series[..] else {
        panic!("{range:?}");
    };
    let labels = &line.labels.as_ref().unwrap().labels;
    assert!(
        labels
            .iter()
            .any(|l| (&l.name[..], &l.value[..]) == ("service_name", "s")),
        "{labels:?}"
    );
    let point = Point {
        time: at(0),
        value: 3 * SECOND,
        a_second: 0.3e9,
    };
    assert_eq!(line.points, [point]);
}

async fn reports(server: SocketAddr) {
    let method = format!("{QUERY}/Query");
    let ask = async |asked: Asked| call::<Answer>(server, &method, &[asked]).await;

    let top = ask(report(2)).await.unwrap();
    assert_eq!(top.total, 3 * SECOND);
    let row = |node: &TopNode| {
        let function = node.meta.as_ref().unwrap().function.clone().unwrap();
        (
            function.name,
            node.cumulative / SECOND,
            node.flat / SECOND,
            node.diff / SECOND,
        )
    };
    let mut rows: Vec<_> = top.top.unwrap().list.iter().map(row).collect();
    rows.sort();
    let expected = |diff| {
        [("leaf", 0), ("main", 0), ("square", 3)]
            .map(|(name, flat)| (name.to_owned(), 3, flat, diff))
    };
    assert_eq!(rows, expected(0));

    for kind in [0, 4] {
        let answer = ask(report(kind)).await.unwrap();
        let graph = answer.graph.unwrap();
        assert_eq!((answer.total, graph.height), (3 * SECOND, 3));
        assert_eq!(graph.root.as_ref().unwrap().cumulative, 3 * SECOND);
        assert_eq!(path(&graph), ["main", "leaf", "square"]);
    }
    let pprof = ask(report(1)).await.unwrap().pprof.unwrap();
    let limits = pilotlight_profile::Limits::default();
    let decoded = pilotlight_profile::decode(&pprof, pilotlight_profile::Mode::Strict, &limits);
    assert_eq!(decoded.unwrap().profile.samples.values, [3 * SECOND]);
    let metadata = ask(report(8)).await.unwrap().metadata.unwrap();
    assert_eq!(metadata.words, ["/srv/bin/app"]);

    // One time, and another.
    let single = |seconds| Asked {
        single: Some(Single {
            time: at(seconds),
            query: format!("process_{CPU}{{}}"),
        }),
        report: 2,
        ..Asked::default()
    };
    assert_eq!(ask(single(0)).await.unwrap().total, 3 * SECOND);
    assert_eq!(ask(single(1)).await.unwrap().total, 0);

    let of = |from, until| {
        Some(Side {
            merge: merge(&format!("process_{CPU}{{}}"), from, until),
        })
    };
    let diff = |report| Asked {
        diff: Some(Diff {
            a: of(-60, -30),
            b: of(-60, 60),
        }),
        report,
        ..Asked::default()
    };
    let mut rows: Vec<_> = ask(diff(2))
        .await
        .unwrap()
        .top
        .unwrap()
        .list
        .iter()
        .map(row)
        .collect();
    rows.sort();
    assert_eq!(rows, expected(3));
    let root = ask(diff(4)).await.unwrap().graph.unwrap().root.unwrap();
    assert_eq!((root.cumulative, root.diff), (3 * SECOND, 3 * SECOND));

    let refused = [
        (report(3), 12, "report type 3"),
        (
            Asked {
                inverted: Some(true),
                ..report(2)
            },
            3,
            "invert_call_stack",
        ),
        (
            Asked {
                merge: None,
                ..report(2)
            },
            3,
            "options are missing",
        ),
        (
            Asked {
                merge: merge("cpu{}", 0, 1),
                ..report(2)
            },
            3,
            "profile type",
        ),
        (diff(1), 12, "report type 1"),
    ];
    for (asked, code, text) in refused {
        let (found, message) = ask(asked).await.unwrap_err();
        let message = message.replace("%20", " ");
        assert!(found == code && message.contains(text), "{found} {message}");
    }
}
