// Opens a page in a headless Chromium and prints, as JSON, what a reader would meet.
// node look.mjs CHROMIUM PAGE [FOLDER FOR SCREENSHOTS] [ANCHOR]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [executablePath, file, shots, anchor] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
const address = pathToFileURL(file).href;
const found = { messages: [], requests: [], violations: {}, tooWide: {} };
page.on("console", (message) => found.messages.push(message.text()));
page.on("pageerror", (error) => found.messages.push(String(error)));
page.on("request", (request) => {
  if (!/^data:/.test(request.url()) && request.url().split("#")[0] !== address) found.requests.push(request.url());
});

async function open(hash = "") {
  await page.goto("about:blank");
  await page.goto(address + hash);
}
const shown = () => page.$$eval(".claim", (all) => all.filter((e) => !e.closest("[hidden]")).map((e) => e.id));
const inside = (element) => {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
};

for (const width of [360, 768, 1400]) {
  await page.setViewport({ width, height: 900 });
  await open(anchor);
  found.tooWide[width] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (shots) await page.screenshot({ path: `${shots}/${width}.png` });
}
for (const mode of ["light", "dark"]) {
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: mode }]);
  await open();
  await page.$$eval("details", (all) => all.forEach((e) => (e.open = true)));
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  found.violations[mode] = violations.map((v) => `${v.id}: ${v.nodes[0].html} (${v.nodes.length})`);
  await open(anchor);
  if (shots) await page.screenshot({ path: `${shots}/${mode}.png` });
}

if (!(await page.$("#filter"))) { // a page without claims
  await browser.close();
  console.log(JSON.stringify(found));
  process.exit();
}
await open();
found.all = await shown();
await page.select("#filter [name=verdict]", await page.$eval(".claim", (e) => e.dataset.verdict));
found.verdict = await shown();
found.remembered = await page.evaluate(() => location.hash);
await open(found.remembered);
found.again = await shown();
await page.keyboard.press("/");
await page.keyboard.type("nothing says this");
found.none = await shown();
await page.keyboard.press("Escape");
await new Promise((done) => setTimeout(done, 100));
found.reset = await shown();
await page.select("#filter [name=verdict]", "not testable here");
found.untested = await page.$$eval(".claim", (all) => all.filter((e) => e.checkVisibility()).map((e) => e.id));
await open();
found.dead = await page.$$eval("a[href^='#']", (all) =>
  all.map((e) => e.getAttribute("href")).filter((to) => !document.getElementById(decodeURIComponent(to.slice(1)))));
await page.click("#keys");
await page.click("#filter [type=reset]"); // which leaves the keys off
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("j");
await new Promise((done) => setTimeout(done, 100));
found.withoutKeys = await page.evaluate(() => location.hash);
await page.click("#keys");
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("j");
await new Promise((done) => setTimeout(done, 100));
found.next = await page.evaluate(() => location.hash);
found.nextInside = await page.$eval(`[id="${found.next.slice(1)}"]`, inside);
const last = found.all.at(-1);
await open(`#${last}`);
found.linked = await page.$eval(`[id="${last}"]`, inside);
await page.click(".zoom");
found.enlarged = await page.$eval("#large", (e) => e.open && e.querySelector("img").naturalWidth > 0);
await page.keyboard.press("Escape");
found.closed = await page.$eval("#large", (e) => !e.open);
await page.setJavaScriptEnabled(false);
await open();
found.withoutScript = await shown();
await browser.close();
console.log(JSON.stringify(found));
