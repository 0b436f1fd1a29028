// Keeps a page current: it is fetched again when something happened to its order, or after a while, and what differs takes
// its place. Nothing needs that: without scripts, or switched off, the page stays as it was made.
"use strict";
(() => {
  const content = document.getElementById("content");
  const button = document.querySelector("#live button");
  const state = document.querySelector("#live span");
  const away = document.getElementById("away");
  const tells = document.getElementById("tells"); // for those who hear the page
  const made = () => document.getElementById("made");
  const own = document.currentScript.src;

  // In seconds: how long a page stays that a stream tells of, and for how long nothing is asked again, at least and at
  // most; and how many times as long as an answer took, so that a slow server is asked less often.
  const told = 60, least = 1, most = 120, share = 20;

  const kept = {
    get: () => { try { return localStorage.getItem("waybill-live") !== "off"; } catch { return true; } },
    set: is => { try { localStorage.setItem("waybill-live", is ? "on" : "off"); } catch { /* it is kept by the page alone */ } },
  };

  let on = kept.get(), pressed = 0;
  let timer = 0, due = 0, asking = false, again = false, ended = 0, took = 0;
  let lost = 0, failures = 0, why = "";
  let stream = null, streamFrom = 0;
  let skew = Date.parse(made().dateTime) - Date.now(); // the server's clock is the one that counts

  // As internal/console/functions.go has it.
  const about = ms => {
    const s = ms / 1000;
    if (s < 1) return `${Math.floor(ms)} ms`;
    if (s < 60) return `${Math.floor(s)} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86400)} d`;
  };

  const every = () => Number(content.dataset.live) || told;
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

  // Whether somebody is at something of the page that would be gone with it.
  const changed = field => {
    if (field.matches("select")) return field.selectedIndex !== Math.max(0, [...field.options].findIndex(o => o.defaultSelected));
    if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
    return field.value !== field.defaultValue;
  };
  const busy = () => {
    const at = document.activeElement, marked = getSelection();
    return Date.now() - pressed < 5000 // what is let go elsewhere is not heard of
      || content.contains(at) && at.matches("input, select, textarea")
      || !marked.isCollapsed && (content.contains(marked.anchorNode) || content.contains(marked.focusNode))
      || content.querySelector("details[open] form") !== null
      || [...content.querySelectorAll("input, select, textarea")].some(changed);
  };

  // Where something is on the page, by what it is called: the same thing on the page as it is later.
  const name = e => e.id || e.getAttribute("aria-label")
    || (e.matches("tr") ? e.querySelector("a")?.getAttribute("href") ?? e.cells[0]?.textContent : e.getAttribute("href") ?? e.querySelector(":scope > h2, :scope > summary")?.textContent)
    || e.tagName + [...e.parentElement.children].filter(o => o.tagName === e.tagName).indexOf(e);
  const place = e => e === content ? "" : `${place(e.parentElement)}\n${name(e)}`;
  const places = selector => new Map([...content.querySelectorAll(selector)].map(e => [place(e), e]));

  // take has what is new take its place, and leaves focus, scrolling and what is unfolded as they are.
  const take = page => {
    const fresh = page.getElementById("content");
    if (!fresh) throw new Error("something else answers than a page of Waybill");
    const script = page.querySelector("script");
    if (script && new URL(script.getAttribute("src"), location.href).href !== own) return location.reload(); // of another release
    if (fresh.dataset.of !== content.dataset.of) return location.reload(); // for somebody else, or in another zone
    if (fresh.dataset.tag === content.dataset.tag) return;

    const open = [...content.querySelectorAll("details[open]")].map(place);
    const scrolled = [...content.querySelectorAll("pre, .scroll")].filter(e => e.scrollLeft || e.scrollTop).map(e => [place(e), e.scrollLeft, e.scrollTop]);
    const focused = content.contains(document.activeElement) ? place(document.activeElement) : null;
    const seen = scrollY > 0 ? [...content.querySelectorAll("h1, section, tr")].find(e => e.getBoundingClientRect().top >= 0) : null;
    const top = seen && [place(seen), seen.getBoundingClientRect().top];

    const says = content.dataset.says;
    content.replaceChildren(...fresh.childNodes);
    for (const key of Object.keys(content.dataset)) delete content.dataset[key];
    Object.assign(content.dataset, fresh.dataset);
    document.title = page.title;
    if (content.dataset.says !== says) put(tells, content.dataset.says);

    if (open.length) { const all = places("details"); for (const at of open) { const e = all.get(at); if (e) e.open = true; } }
    if (scrolled.length) { const all = places("pre, .scroll"); for (const [at, x, y] of scrolled) all.get(at)?.scrollTo(x, y); }
    if (focused !== null) places("a, button, summary, [tabindex]").get(focused)?.focus({ preventScroll: true });
    const now = top && places("h1, section, tr").get(top[0]);
    if (now) scrollBy({ top: now.getBoundingClientRect().top - top[1], behavior: "instant" });
  };

  // plan has the page be fetched in so many seconds, or sooner if that is planned.
  const plan = seconds => {
    const at = Date.now() + seconds * 1000;
    if (timer && due <= at) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(refresh, seconds * 1000);
  };
  const soon = () => { if (asking) again = true; else plan(Math.max(0, (ended - Date.now()) / 1000 + Math.max(least, Math.min(most, share * took)))); };

  const refresh = async () => {
    clearTimeout(timer);
    timer = 0;
    if (!on || document.hidden || asking) return;
    if (busy()) return plan(2);
    asking = true;
    again = false;
    const began = Date.now();
    try {
      const answer = await fetch(location.href, {
        headers: { "If-None-Match": `W/"${content.dataset.tag}"` }, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(30000),
      });
      if (answer.status === 401) throw new Error("the server does not know any more who asks; log in again");
      if (answer.status === 421) throw new Error("another instance has this now; load the page again");
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (on && !busy()) {
          take(page);
          made().replaceWith(page.getElementById("made"));
        }
      } else {
        const [, at, text] = answer.headers.get("Waybill-As-Of")?.match(/^(\S+) (.+)$/) ?? [];
        if (at) {
          made().dateTime = at;
          put(made(), text);
        }
      }
      const date = Date.parse(answer.headers.get("Date"));
      if (Math.abs(date - began - skew) > 2000) skew = date - began;
      if (lost) put(tells, "Connected again.");
      lost = failures = 0;
    } catch (error) {
      why = error.name === "Error" ? error.message : "no answer comes";
      if (!lost) put(tells, `Not current any more: ${why}.`);
      lost ||= began;
      failures++;
    }
    asking = false;
    ended = Date.now();
    took = (ended - began) / 1000;
    listen();
    if (again && !lost) soon();
    const rest = lost ? Math.min(60, 5 * 2 ** failures) : Math.max(stream?.readyState === EventSource.OPEN ? told : every(), Math.min(most, share * took));
    plan(rest * (0.8 + 0.4 * Math.random())); // not all at once
    show();
  };

  // listen has the server tell when something happens to the page's order, if it has a place for one more. A browser holds
  // few streams of one server, so that only pages that are seen have one.
  const listen = () => {
    if (!on || document.hidden || !content.dataset.stream) {
      stream?.close();
      stream = null;
    } else if (!stream && Date.now() >= streamFrom) {
      stream = new EventSource(content.dataset.stream);
      stream.onmessage = soon;
      stream.addEventListener("problem", soon);
      stream.onopen = () => { if (lost) plan(0); };
      stream.onerror = event => {
        if (event.target.readyState === EventSource.CLOSED) { // there was no place, or nothing to tell: the page says more
          if (stream === event.target) stream = null;
          streamFrom = Date.now() + told * 1000;
        }
        if (!lost) soon();
      };
    }
  };

  const show = () => {
    const now = Date.now();
    put(button, on ? "Live: on" : "Live: off");
    put(state, on && !lost && busy() ? "waits: somebody is at the page" : "");
    if (on && lost) put(away.firstElementChild, `Not current for ${about(now - lost)}: ${why}. What you see is as of ${made().textContent}.`);
    away.hidden = !on || !lost;
    if (!on || busy()) return;
    for (const time of content.querySelectorAll("time[data-ago]")) {
      const d = now + skew - Date.parse(time.dateTime);
      put(time, d < 0 ? `in ${about(-d)}` : `${about(d)} ago`);
    }
  };

  const turn = () => {
    listen();
    if (on && !document.hidden) plan(0);
    show();
  };
  button.addEventListener("click", () => {
    on = !on;
    kept.set(on);
    lost = 0;
    turn();
  });
  addEventListener("pointerdown", () => { pressed = Date.now(); }, true);
  for (const type of ["pointerup", "pointercancel"]) addEventListener(type, () => { pressed = 0; }, true);
  document.addEventListener("visibilitychange", turn);
  document.getElementById("live").hidden = false;
  setInterval(() => { if (!document.hidden) show(); }, 1000);
  listen();
  plan(every());
  show();
})();
