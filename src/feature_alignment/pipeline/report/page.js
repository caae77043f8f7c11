"use strict";
// Filters, keys and enlarging; without it the page is whole.
(() => {
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const form = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const large = document.getElementById("large");
  const keys = document.getElementById("keys"); // single keys can disturb, as with speech input
  const claims = all(".claim");
  const figures = all("section.figure");
  const text = new Map([...claims, ...figures].map((e) => [e, e.textContent.toLowerCase()]));
  const heading = (figure) => figure.querySelector("h3").textContent.toLowerCase();

  function fits(asked, element, words) {
    return ["paper", "verdict", "kind"].every((key) => !asked[key] || asked[key] === element.dataset[key]) &&
      asked.text.toLowerCase().split(/\s+/).every((word) => words.includes(word));
  }

  function filter() {
    const asked = Object.fromEntries(new FormData(form));
    for (const figure of figures) {
      const own = all(".claim", figure);
      for (const claim of own) claim.hidden = !fits(asked, claim, heading(figure) + text.get(claim));
      const empty = own.length === 0 && !fits(asked, figure, text.get(figure));
      figure.hidden = empty || (own.length > 0 && own.every((claim) => claim.hidden));
    }
    for (const fold of all("details.untested")) {
      fold.hidden = all(".claim:not([hidden])", fold).length === 0;
      fold.open = Object.values(asked).some(Boolean);
    }
    for (const paper of all("section.of-paper"))
      paper.hidden = all("section.figure", paper).every((figure) => figure.hidden);
    for (const link of all(".contents li[data-for]"))
      link.hidden = document.getElementById(link.dataset.for).hidden;
    const left = claims.filter((claim) => !claim.hidden).length;
    shown.textContent = `${left} of ${claims.length} claims`;
    return Object.entries(asked).filter(([, value]) => value);
  }

  function remember() {
    const asked = filter();
    const address = location.href.split("#")[0];
    history.replaceState(null, "", asked.length ? `${address}#?${new URLSearchParams(asked)}` : address);
  }

  function decoded(text) {
    try { return decodeURIComponent(text); } catch { return text; } // an address typed wrongly
  }

  function arrive() {
    if (location.hash.startsWith("#?")) {
      form.reset();
      for (const [key, value] of new URLSearchParams(location.hash.slice(2)))
        if (form.elements.namedItem(key)) form.elements.namedItem(key).value = value;
      filter();
      return;
    }
    const target = document.getElementById(decoded(location.hash.slice(1)));
    if (!target) return;
    if (target.closest("[hidden]")) { form.reset(); filter(); }
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    target.scrollIntoView();
  }

  function step(by) {
    const visible = figures.filter((figure) => !figure.hidden);
    const top = (figure) => figure.getBoundingClientRect().top - 90;
    const here = visible.filter((figure) => top(figure) < (by > 0 ? 1 : -1)).length;
    const next = visible[by > 0 ? here : here - 1];
    if (next) location.hash = next.id;
  }

  form.hidden = false;
  form.addEventListener("input", remember);
  form.addEventListener("reset", () => setTimeout(remember));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", arrive);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || large.open) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape" && form.contains(event.target)) { form.reset(); event.target.blur(); }
    else if (typing || !keys.checked) return;
    else if (event.key === "/") { event.preventDefault(); form.elements.text.focus(); }
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
  document.addEventListener("click", (event) => {
    const picture = event.target.closest(".zoom");
    if (!picture || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    large.replaceChildren(large.querySelector("button"), picture.querySelector("img").cloneNode());
    large.showModal();
  });
  large.addEventListener("click", () => large.close());
  const contents = document.querySelector(".contents details");
  const fold = () => { if (window.innerWidth < 1024) contents.open = false; };
  contents.addEventListener("click", (event) => { if (event.target.closest("a")) fold(); });
  window.addEventListener("beforeprint", () => all("details").forEach((e) => { e.open = true; }));
  fold();
  filter();
  arrive();
})();
