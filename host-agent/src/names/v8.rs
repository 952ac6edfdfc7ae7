//! What V8 writes into the names of its perf map: kind, tier, function, file, line and column in one text.

/// A function of a script, or any other name as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its file; empty when not told.
    pub file: &'a str,
    /// Line of its begin; 0 when not told.
    pub line: i64,
}

/// `JS:*hot /app/a.js:3:14`: interpreted (`~`), baseline (`^`) and optimised (`*`, `+`) code of a function are one
/// function.
pub fn function(text: &str) -> Function<'_> {
    const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
    let whole = Function {
        name: text,
        file: "",
        line: 0,
    };
    let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) else {
        return whole;
    };
    let rest = rest
        .strip_prefix(['~', '^', '*', '+', '\''])
        .unwrap_or(rest);
    let (name, place) = match rest.split_once(' ') {
        Some((name, place)) => (name, place),
        None => (rest, ""),
    };
    let (file, line) = place_of(place);
    Function {
        name: if name.is_empty() { "(anonymous)" } else { name },
        file,
        line,
    }
}

/// `file:line:column`; files may hold colons.
fn place_of(place: &str) -> (&str, i64) {
    let mut parts = place.rsplitn(3, ':');
    let (column, line, file) = (parts.next(), parts.next(), parts.next());
    match (file, line.and_then(|line| line.parse().ok()), column) {
        (Some(file), Some(line), Some(_)) => (file, line),
        _ => (place, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_of_a_function_are_one_and_other_names_stay() {
        let hot = Function {
            name: "hot",
            file: "file:///app/a b.mjs",
            line: 3,
        };
        for tier in ["JS:~", "JS:^", "JS:*", "LazyCompile:*", "Function:~"] {
            assert_eq!(
                function(&format!("{tier}hot file:///app/a b.mjs:3:14")),
                hot,
                "{tier}"
            );
        }
        assert_eq!(function("JS:~ node:internal/main:12:1").name, "(anonymous)");
        assert_eq!(function("JS:^x").file, "");
        assert_eq!(function("void A.b(int)").name, "void A.b(int)");
        assert_eq!(function("Builtin:ArrayMap").name, "Builtin:ArrayMap");
    }
}
