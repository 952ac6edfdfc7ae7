// Bundles test/unit/*.test.ts and runs them with node:test.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const folder = join(dirname(fileURLToPath(import.meta.url)), "unit");
const tests = readdirSync(folder).filter((f) => f.endsWith(".test.ts")).map((f) => join(folder, f));
const out = mkdtempSync(join(tmpdir(), "pilotlight-ui-test-"));
await esbuild.build({ entryPoints: tests, bundle: true, platform: "node", format: "esm", outdir: out, outExtension: { ".js": ".mjs" }, sourcemap: "inline" });
const files = readdirSync(out).map((f) => join(out, f));
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit" });
rmSync(out, { recursive: true, force: true });
process.exitCode = run.status ?? 1;
