// What the page does by itself; everything works without it. In the markup it reads:
//   [data-refresh="5"][id]      a part that is read again every five seconds; all at the shortest of their times
//   [data-announce="3 failed"]  such a part or one in it: the text, or else its content, goes to [role=status] when it has changed
//   th[data-select-all="key"]   where the box belongs that selects all boxes named `key`
"use strict";
(() => {
  const LONGEST_WAIT = 60, PATIENCE = 15_000;
  const FOCUSABLE = "a, button, summary, [tabindex]", SEARCH = "form.search :is(input:not([type=hidden]), textarea)";
  const all = (of, query) => [...of.querySelectorAll(query)];
  const make = (name, properties = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), properties);
    return made.append(...inside), made;
  };
  const parts = () => all(document, "[data-refresh][id]");
  const clock = (time) => time.toTimeString().slice(0, 8);
  let read = new Date(), failures = 0, timer = 0, isPaused = false, isPressed = false, isAsking = false;

  const say = (text, isLate = false) => {
    const status = document.querySelector("[role=status]");
    status?.classList.toggle("late", isLate);
    if (status?.textContent !== text) status?.replaceChildren(text);
  };

  // A part stays as it is while somebody marks text in it, fills it in, reads its details, or presses a button of it.
  const isBusy = (part) => {
    const selection = getSelection();
    const isMarked = !selection.isCollapsed && selection.rangeCount && selection.getRangeAt(0).intersectsNode(part);
    const isFilledIn = part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    return isPressed || isMarked || isFilledIn || part.querySelector("details[open], dialog[open], input:checked") !== null;
  };

  const textsOf = (part) => [part, ...all(part, "*")].filter((of) => "announce" in of.dataset)
    .map((of) => of.dataset.announce || of.textContent.trim());

  // Puts a part in its new state, keeps the focus and where tables are scrolled to, and returns the news.
  const replace = (part, fresh) => {
    const place = all(part, FOCUSABLE).indexOf(document.activeElement);
    const name = place >= 0 && (document.activeElement.id || document.activeElement.href);
    const scrolled = all(part, ".scroll").map((of) => [of.scrollLeft, of.scrollTop]);
    const known = textsOf(part);
    part.replaceWith(document.adoptNode(fresh));
    addBoxes(fresh);
    all(fresh, ".scroll").forEach((of, at) => of.scrollTo(...(scrolled[at] ?? [0, 0])));
    const places = all(fresh, FOCUSABLE);
    ((name && places.find((of) => of.id === name || of.href === name)) || places[place])?.focus({ preventScroll: true });
    return textsOf(fresh).filter((text) => !known.includes(text));
  };

  // Reads this page again. Answers what is wrong, in words, or nothing.
  const readAgain = async () => {
    const options = { cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(PATIENCE) };
    const answer = await fetch(location.pathname + location.search, options).catch(() => null);
    const text = await answer?.text().catch(() => null);
    if (text == null) return "The server does not answer.";
    const page = new DOMParser().parseFromString(text, "text/html");
    if (answer.status >= 400) {
      return page.querySelector("main [role=alert]")?.textContent.trim() || `The server answers with an error (${answer.status}).`;
    }
    const pairs = parts().map((part) => [part, page.getElementById(part.id)]).filter(([, fresh]) => fresh);
    if (!pairs.length) return "The server answers with another page: load this one again.";
    const news = pairs.filter(([part]) => !isBusy(part)).flatMap(([part, fresh]) => replace(part, fresh));
    document.title = page.title;
    say([...(failures ? ["the server answers again"] : []), ...news].join("; "));
  };

  const refresh = async () => {
    if (isAsking || !parts().length) return;
    isAsking = true;
    const wrong = await readAgain().catch((error) => `It cannot be refreshed (${error.message}).`);
    if (wrong) say(`This page is from ${clock(read)}. ${wrong}`, true);
    [isAsking, failures, read] = [false, wrong ? failures + 1 : 0, wrong ? read : new Date()];
    plan();
  };
  const plan = () => {
    clearTimeout(timer);
    age.textContent = `as of ${clock(read)}${parts().some(isBusy) ? ", waits while you use it" : ""}`;
    const seconds = Math.min(...parts().map((part) => Math.max(1, Number(part.dataset.refresh) || LONGEST_WAIT)));
    if (isPaused || document.hidden || seconds === Infinity) return;
    const wait = Math.max(seconds, Math.min(LONGEST_WAIT, seconds * 2 ** failures)) * (0.9 + Math.random() / 5);
    timer = setTimeout(() => (parts().every(isBusy) ? plan() : refresh()), wait * 1000);
  };

  const boxesOf = (head) => all(head.closest("table"), `tbody [name="${CSS.escape(head.dataset.selectAll)}"]:enabled`);
  const addBoxes = (part) => all(part, "th[data-select-all]").forEach((head) => {
    const box = make("input", { type: "checkbox", ariaLabel: "select all rows of this page" });
    box.addEventListener("change", () => boxesOf(head).forEach((of) => (of.checked = box.checked)));
    head.replaceChildren(box);
  });
  document.addEventListener("change", () => all(document, "th[data-select-all]").forEach((head) => {
    const boxes = boxesOf(head), some = boxes.some((of) => of.checked), every = some && boxes.every((of) => of.checked);
    Object.assign(head.firstChild, { checked: every, indeterminate: some && !every });
  }));

  // Keys of one character can be switched off, for people whose software types what they say.
  const isOn = make("input", { type: "checkbox", checked: true });
  const actions = { "/": () => document.querySelector(SEARCH)?.focus(), r: refresh, "?": () => help.showModal() };
  const words = { "/": "go to the search", r: "refresh now", "?": "show these keys" };
  const listed = Object.keys(words).flatMap((key) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words[key])]);
  const choice = make("label", {}, isOn, "these keys are on");
  const close = make("form", { method: "dialog", className: "actions" }, make("button", { autofocus: true }, "Close"), choice);
  const help = make("dialog", { ariaLabel: "Keys" }, make("dl", { className: "facts" }, ...listed), close);
  try { isOn.checked = localStorage.keys !== "off"; } catch { /* the browser stores nothing */ }
  isOn.addEventListener("change", () => { try { localStorage.keys = isOn.checked ? "on" : "off"; } catch { /* nor then */ } });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.isComposing || event.target.closest("input, select, textarea, [contenteditable], dialog");
    const isOurs = isOn.checked && Object.hasOwn(actions, event.key) && !(event.ctrlKey || event.metaKey || event.altKey);
    if (isTyping || !isOurs) return;
    event.preventDefault();
    actions[event.key]();
  });

  const age = make("span", { className: "age muted" });
  const pause = make("button", { type: "button", ariaPressed: "false" }, "Pause refreshing");
  const opener = make("button", { type: "button", onclick: actions["?"] }, "Keys");
  pause.addEventListener("click", () => {
    pause.ariaPressed = String((isPaused = !isPaused));
    isPaused ? plan() : refresh();
  });
  document.addEventListener("pointerdown", () => (isPressed = true));
  ["pointerup", "pointercancel", "blur"].forEach((end) => addEventListener(end, () => (isPressed = false)));
  document.addEventListener("visibilitychange", () => (document.hidden || isPaused ? plan() : refresh()));
  const tools = parts().length ? [age, pause, opener] : [opener];
  document.querySelector("header.top")?.append(make("div", { className: "tools" }, ...tools));
  document.body.append(help);
  addBoxes(document);
  plan();
})();
