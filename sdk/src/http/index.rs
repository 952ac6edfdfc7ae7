//! The index page, in the shape of Go's: a table of profiles, then what each of them is.

use std::fmt::Write;

/// One row of the page.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// Captures of it that run now.
    pub(super) running: usize,
    /// Why it cannot be had now, if so.
    pub(super) off: Option<String>,
}

pub(super) fn page(entries: &[Entry]) -> String {
    let mut rows = String::new();
    let mut descriptions = String::new();
    for entry in entries {
        let name = escape(entry.name);
        let state = entry
            .off
            .as_ref()
            .map_or("on".into(), |why| format!("off: {}", escape(why)));
        // Writing to a String cannot fail.
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td><a href='{name}?debug=1'>{name}</a></td><td>{state}</td></tr>",
            entry.running
        );
        let _ = writeln!(
            descriptions,
            "<li><div class=profile-name>{name}: </div> {}</li>",
            escape(entry.description)
        );
    }
    format!("{HEAD}{rows}{MIDDLE}{descriptions}{TAIL}")
}

const HEAD: &str = "<html>
<head>
<title>/debug/pprof/</title>
<style>
.profile-name{
\tdisplay:inline-block;
\twidth:6rem;
}
</style>
</head>
<body>
/debug/pprof/
<br>
<p>Served by pilotlight. For a CPU profile: go tool pprof http://this-address/debug/pprof/profile?seconds=5</p>
<br>
Types of profiles available:
<table>
<thead><td>Count</td><td>Profile</td><td>State</td></thead>
";

const MIDDLE: &str = "</table>
<br>
<p>
Profile Descriptions:
<ul>
";

const TAIL: &str = "</ul>
</p>
</body>
</html>";

/// The five characters that Go's `html.EscapeString` escapes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&#39;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_and_texts_are_escaped() {
        let html = page(&[Entry {
            name: "<script>'\"&",
            description: "</li><b>",
            running: 3,
            off: Some("<i>why</i>".into()),
        }]);
        assert!(html.contains("<td>3</td>"));
        assert!(html.contains("&lt;script&gt;&#39;&#34;&amp;?debug=1"));
        assert!(html.contains("&lt;/li&gt;&lt;b&gt;"));
        assert!(html.contains("off: &lt;i&gt;why&lt;/i&gt;"));
        assert!(!html.contains("<script>") && !html.contains("<b>") && !html.contains("<i>"));
    }
}
