//! `file_sd_configs`: files that come, change, break and go.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

use pilotlight_scraper::config::FileSd;
use pilotlight_scraper::{FileSource, Refresh};
use pilotlight_tests::process::Scratch;
use std::path::Path;
use std::time::Duration;

fn source(folder: &Path, files: &[&str]) -> FileSource {
    FileSource::new(FileSd {
        files: files.iter().map(|file| folder.join(file)).collect(),
        refresh_interval: Duration::from_secs(300),
    })
}

fn addresses(source: &FileSource) -> Vec<String> {
    source
        .groups()
        .flat_map(|group| group.targets.clone())
        .collect()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn yaml_and_json_are_read_with_labels_and_their_path() {
    let scratch = Scratch::new("files-read");
    write(
        scratch.path(),
        "a.yml",
        "- targets: [h:1, h:2]\n  labels: {env: dev}\n",
    );
    write(
        scratch.path(),
        "b.json",
        r#"[{"targets": ["h:3"], "labels": {"n": "1"}}]"#,
    );
    write(scratch.path(), "c.txt", "not looked at");
    let mut source = source(scratch.path(), &["*.yml", "*.json"]);
    assert!(source.refresh(true).changed);
    assert_eq!(source.failing(), 0);
    assert_eq!(addresses(&source), ["h:1", "h:2", "h:3"]);
    let group = source.groups().next().unwrap();
    assert_eq!(group.labels.get("env"), Some("dev"));
    assert!(
        group
            .labels
            .get("__meta_filepath")
            .unwrap()
            .ends_with("a.yml")
    );
}

#[test]
fn a_changed_file_is_read_again_and_an_unchanged_one_is_not() {
    let scratch = Scratch::new("files-change");
    write(scratch.path(), "a.yml", "- targets: [h:1]\n");
    let mut source = source(scratch.path(), &["a.yml"]);
    assert!(source.refresh(false).changed);
    assert_eq!(source.refresh(false), Refresh::default());
    write(
        scratch.path(),
        "a.yml",
        "- targets: [h:1]\n- targets: [h:2]\n- targets: [h:3]\n",
    );
    assert!(source.refresh(false).changed);
    assert_eq!(addresses(&source), ["h:1", "h:2", "h:3"]);
    // prometheus/prometheus#9019: three groups, then one
    write(scratch.path(), "a.yml", "- targets: [h:2]\n");
    assert!(source.refresh(false).changed);
    assert_eq!(addresses(&source), ["h:2"]);
}

#[test]
fn a_broken_file_keeps_its_targets_says_so_once_and_heals() {
    let scratch = Scratch::new("files-broken");
    write(scratch.path(), "a.yml", "- targets: [h:1]\n");
    let mut source = source(scratch.path(), &["a.yml"]);
    source.refresh(false);
    for text in ["- targets: [h:1\n", "- target: [h:9]\n", "targets: [h:9]\n"] {
        write(scratch.path(), "a.yml", text);
        let refresh = source.refresh(true);
        assert!(!refresh.changed);
        assert!(
            refresh.news[0].ends_with("its earlier targets are kept"),
            "{refresh:?}"
        );
        assert_eq!(source.refresh(true).news, [""; 0], "not said twice");
        assert_eq!(
            (addresses(&source), source.failing()),
            (vec!["h:1".to_owned()], 1)
        );
    }
    write(scratch.path(), "a.yml", "- targets: [h:1, h:2]\n");
    let refresh = source.refresh(false);
    assert!(
        refresh.changed && refresh.news[0].ends_with("readable again"),
        "{refresh:?}"
    );
    assert_eq!(source.failing(), 0);
}

#[test]
fn a_removed_file_loses_its_targets_and_may_come_back() {
    let scratch = Scratch::new("files-removed");
    write(scratch.path(), "a.yml", "- targets: [h:1]\n");
    write(scratch.path(), "b.yml", "- targets: [h:2]\n");
    let mut starred = source(scratch.path(), &["*.yml"]);
    let mut named = source(scratch.path(), &["a.yml"]);
    starred.refresh(false);
    named.refresh(false);
    std::fs::remove_file(scratch.path().join("a.yml")).unwrap();
    assert!(starred.refresh(false).changed);
    assert_eq!(addresses(&starred), ["h:2"]);
    assert_eq!(starred.failing(), 0);
    let refresh = named.refresh(false);
    assert!(
        refresh.changed && refresh.news[0].contains("no such file"),
        "{refresh:?}"
    );
    assert_eq!((addresses(&named), named.failing()), (vec![], 1));
    assert_eq!(named.refresh(false), Refresh::default(), "not said twice");
    write(scratch.path(), "a.yml", "- targets: [h:1]\n");
    assert!(named.refresh(false).changed);
    assert_eq!(addresses(&named), ["h:1"]);
}
