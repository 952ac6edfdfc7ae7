// Builds ui/dist/*.gz and ui/src/generated.rs from src/. The same input gives the same bytes.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "../dist");
const BUDGET = 120_000;

const options = {
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", "app-css": "src/style.css" },
  bundle: true,
  minify: !process.env.READABLE,
  format: "iife",
  target: ["es2022", "chrome120", "firefox120", "safari17"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  outdir: "/out",
  write: false,
};

const LICENCES = "/* pilotlight, Apache-2.0. Contains Preact (MIT, (c) Jason Miller) and uPlot (MIT, (c) Leon Sorokin). */\n";

/** All files of the page by name. */
export async function build() {
  const result = await esbuild.build(options);
  const out = (suffix) => Buffer.from(result.outputFiles.find((f) => f.path.endsWith(suffix)).contents);
  return {
    "index.html": readFileSync(join(here, "src/index.html")),
    "app.js": Buffer.concat([Buffer.from(LICENCES), out("app.js")]),
    "app.css": out("app-css.css"),
    "icon.svg": readFileSync(join(here, "src/icon.svg")),
  };
}

/** gzip with the header's time and system fields fixed. */
export function gzip(bytes) {
  const gz = gzipSync(bytes, { level: 9, memLevel: 9 });
  gz.fill(0, 4, 8);
  gz[9] = 255;
  return gz;
}

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };

function writeAll(files) {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist, { recursive: true });
  let sum = 0;
  let table = "";
  for (const [name, bytes] of Object.entries(files)) {
    const gz = gzip(bytes);
    sum += gz.length;
    writeFileSync(join(dist, `${name}.gz`), gz);
    const etag = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
    const type = TYPES[name.split(".").pop()];
    table += `    (\n        "/${name}",\n        Asset {\n            gz: include_bytes!("../dist/${name}.gz"),\n            content_type: "${type}",\n            etag: "\\"${etag}\\"",\n        },\n    ),\n`;
    console.log(`${name.padEnd(11)} ${String(bytes.length).padStart(7)} B  ${String(gz.length).padStart(6)} B gz`);
  }
  const rust = `// Written by \`npm run build\` in ui/web. Do not edit.\n\nuse crate::Asset;\n\npub(crate) const ASSETS: &[(&str, Asset)] = &[\n${table}];\n`;
  writeFileSync(join(here, "../src/generated.rs"), rust);
  console.log(`FIGURE ui/bundle_gz value=${(sum / 1000).toFixed(1)}kB goal=120kB ${sum <= BUDGET ? "ok" : "MISS"}`);
  if (sum > BUDGET) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeAll(await build());
