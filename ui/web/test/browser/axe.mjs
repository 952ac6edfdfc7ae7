// Serious and critical findings of axe-core in a page.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Texts of the findings, one a rule and element. The page's CSP stays in force: the script comes by the debugger. */
export async function findings(page) {
  await page.evaluate(source);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return result.violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .flatMap((v) => v.nodes.map((n) => `${v.impact} ${v.id}: ${n.target.join(" ")}: ${n.failureSummary?.split("\n")[1]?.trim() ?? v.help}`));
}
