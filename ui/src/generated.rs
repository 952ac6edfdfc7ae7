// Written by `npm run build` in ui/web. Do not edit.

use crate::Asset;

pub(crate) const ASSETS: &[(&str, Asset)] = &[
    (
        "/index.html",
        Asset {
            gz: include_bytes!("../dist/index.html.gz"),
            content_type: "text/html; charset=utf-8",
            etag: "\"5bc259f9944dea23\"",
        },
    ),
    (
        "/app.js",
        Asset {
            gz: include_bytes!("../dist/app.js.gz"),
            content_type: "text/javascript; charset=utf-8",
            etag: "\"086d7ce0d57da303\"",
        },
    ),
    (
        "/app.css",
        Asset {
            gz: include_bytes!("../dist/app.css.gz"),
            content_type: "text/css; charset=utf-8",
            etag: "\"b850f5b02ef3a0c6\"",
        },
    ),
    (
        "/icon.svg",
        Asset {
            gz: include_bytes!("../dist/icon.svg.gz"),
            content_type: "image/svg+xml",
            etag: "\"9ed3ff483c6d0c45\"",
        },
    ),
];
