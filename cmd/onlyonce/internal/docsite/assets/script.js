"use strict";

// The search. Its index is a script, which is loaded when the field gets the focus.
(() => {
  const form = document.querySelector("#site-search"), field = form.querySelector("input");
  const panel = form.querySelector("#site-results"), status = panel.querySelector("p"), list = panel.querySelector("ol");
  const root = document.documentElement.dataset.root;
  const most = 30; // results that are shown
  let sections; // of all pages, once they are loaded
  form.hidden = false;

  function load() {
    if (sections) return;
    sections = new Promise((loaded, failed) => {
      const script = document.createElement("script");
      script.src = root + "search-index.js";
      script.onload = () => loaded(window.searchIndex.sections.map((s) => {
        const page = window.searchIndex.pages[s.page];
        return {
          ...s, title: page.title, url: root + page.path + (s.id && "#" + s.id),
          lower: { title: page.title.toLowerCase(), heading: s.heading.toLowerCase(), text: s.text.toLowerCase() },
        };
      }));
      script.onerror = failed;
      document.head.append(script);
    });
  }

  // score rates a section: 0 if it lacks one of the terms. A heading counts more than the title
  // of the page, and that more than the text; the beginning of a word counts more than its inside.
  function score(section, terms, phrase) {
    const { title, heading, text } = section.lower;
    let total = 0;
    for (const { word, start } of terms) {
      const rate = (where, atStart, inside) => start.test(where) ? atStart : where.includes(word) ? inside : 0;
      const found = rate(heading, 30, 12) + rate(title, 20, 8) + rate(text, 6, 2);
      if (!found) return 0;
      total += found + Math.min(4, text.split(word).length - 1);
    }
    if (heading === phrase) total += 60;
    if (terms.length > 1 && heading.includes(phrase)) total += 40;
    if (terms.length > 1 && text.includes(phrase)) total += 10;
    return total;
  }

  // excerpt returns the text around the first term, with the terms marked.
  function excerpt(section, terms) {
    const at = Math.min(...terms.map(({ word }) => section.lower.text.indexOf(word)).filter((i) => i >= 0));
    const from = at > 60 && at < Infinity ? section.text.indexOf(" ", at - 60) + 1 : 0;
    const text = (from > 0 ? "… " : "") + section.text.slice(from, from + 170) + (section.text.length > from + 170 ? " …" : "");
    const words = new Set(terms.map(({ word }) => word));
    return text.split(new RegExp(`(${[...words].join("|")})`, "iu")).map((part) => {
      if (!words.has(part.toLowerCase())) return part;
      const mark = document.createElement("mark");
      mark.textContent = part;
      return mark;
    });
  }

  function result(section, terms) {
    const item = document.createElement("li"), link = document.createElement("a"), heading = document.createElement("strong");
    const title = document.createElement("span"), text = document.createElement("div");
    link.href = section.url;
    heading.textContent = section.heading;
    title.textContent = section.id ? " · " + section.title : "";
    text.append(...excerpt(section, terms));
    link.append(heading, title, text);
    item.append(link);
    return item;
  }

  async function search() {
    const phrase = field.value.trim().toLowerCase();
    const words = phrase.match(/[\p{L}\p{N}_]+/gu) ?? [];
    panel.hidden = words.length === 0;
    if (panel.hidden) return;
    load();
    let all;
    try {
      all = await sections;
    } catch {
      sections = undefined;
      status.textContent = "The search index could not be loaded.";
      return list.replaceChildren();
    }
    if (phrase !== field.value.trim().toLowerCase()) return; // the next search is under way
    const terms = words.map((word) => ({ word, start: new RegExp(`(?<![\\p{L}\\p{N}])${word}`, "u") }));
    const found = all.map((section) => ({ section, points: score(section, terms, phrase) })).filter(({ points }) => points > 0)
      .sort((a, b) => b.points - a.points);
    status.textContent = found.length === 0 ? "No section has all of these words." : found.length === 1 ? "1 section"
      : `${found.length} sections${found.length > most ? `, of which the best ${most} are shown` : ""}`;
    list.replaceChildren(...found.slice(0, most).map(({ section }) => result(section, terms)));
    panel.scrollTop = 0;
  }

  const close = () => { panel.hidden = true; };
  field.addEventListener("focus", load);
  field.addEventListener("focus", search);
  field.addEventListener("input", search);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a")?.click();
  });
  form.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !form.contains(event.relatedTarget)) close();
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target) || event.target.closest("#site-results a")) close();
  });
  form.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement); // -1: the field
    if (event.key === "Escape") {
      field.focus();
      close();
    } else if (event.key === "ArrowDown" && at + 1 < links.length) {
      links[at + 1].focus();
    } else if (event.key === "ArrowUp" && at >= 0) {
      (links[at - 1] ?? field).focus();
    } else {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, [contenteditable]")) return;
    event.preventDefault();
    field.focus();
  });
})();

// A link to a section of the same page closes the menu that it is in.
for (const menu of document.querySelectorAll("[popover]")) {
  menu.addEventListener("click", (event) => {
    if (event.target.closest("a") && menu.matches(":popover-open")) menu.hidePopover();
  });
}
