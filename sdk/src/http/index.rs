//! The index page, in the shape of Go's: a table of profiles, then what each of them is.

use std::fmt::Write;

use crate::types::{Kind, ProfileType, State};

/// The page; with a button to switch each type where `may_switch`.
pub(super) fn page(types: &[ProfileType], may_switch: bool) -> String {
    let mut rows = String::new();
    let mut descriptions = String::new();
    for ty in types {
        let name = escape(ty.name);
        let (on, state) = match &ty.state {
            State::On => (true, "on".into()),
            State::Off {
                why,
                how_to_switch_on,
            } => {
                let how = escape(how_to_switch_on);
                (
                    false,
                    format!("off: {}; to switch it on: {how}", escape(why)),
                )
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td><a href='{name}?debug=1'>{name}</a></td><td>{state}</td><td>{}</td>{}</tr>",
            ty.count,
            escape(&ty.cost),
            button(&name, on, may_switch && ty.kind != Kind::Text),
        );
        let _ = writeln!(
            descriptions,
            "<li><div class=profile-name>{name}: </div> {}</li>",
            escape(ty.description)
        );
    }
    format!("{HEAD}{rows}{MIDDLE}{descriptions}{TAIL}")
}

fn button(name: &str, on: bool, shown: bool) -> String {
    if !shown {
        return String::new();
    }
    let (value, label) = if on {
        (0, "switch off")
    } else {
        (1, "switch on")
    };
    format!(
        "<td><form method=post action='{name}?enable={value}'><button>{label}</button></form></td>"
    )
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
<p>Set debug=1 as a query parameter to export in legacy text format</p>
<br>
Types of profiles available:
<table>
<thead><td>Count</td><td>Profile</td><td>State</td><td>Cost now</td></thead>
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
        let ty = ProfileType {
            name: "<script>'\"&",
            description: "</li><b>",
            kind: Kind::Level,
            state: State::Off {
                why: "<i>why</i>".into(),
                how_to_switch_on: "<u>how</u>".into(),
            },
            cost: "<s>".into(),
            count: 3,
        };
        let html = page(std::slice::from_ref(&ty), true);
        assert!(html.contains("<td>3</td>"));
        assert!(html.contains("&lt;script&gt;&#39;&#34;&amp;?debug=1"));
        assert!(html.contains("&lt;/li&gt;&lt;b&gt;"));
        assert!(
            html.contains("off: &lt;i&gt;why&lt;/i&gt;; to switch it on: &lt;u&gt;how&lt;/u&gt;")
        );
        for tag in ["<script>", "<b>", "<i>", "<u>", "<s>"] {
            assert!(!html.contains(tag), "{tag} in {html}");
        }
        assert!(html.contains("<button>switch on</button>"));
        assert!(!page(&[ty], false).contains("<form"));
    }
}
