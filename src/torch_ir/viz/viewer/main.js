// The page: panes, tree, panel, search and overlays work together; keys, hash, theme, printing.
"use strict";

const KEYS = [
  ["/", "search"], ["Enter", "open or close what is selected; in the search, the next match"], ["↑ ↓", "to what makes or takes the value"],
  ["← →", "to the neighbors"], ["Backspace", "to the box around"], ["f", "fit all into the window"], ["+ −", "zoom (also Ctrl and wheel, or two fingers)"],
  ["c", "next colors"], ["t", "dark or light"], ["s", "save the picture as SVG"], ["Esc", "back"], ["?", "these keys"],
];

class Page {
  constructor(data) {
    this.data = data;
    this.programs = data.programs.map((record, at) => new Program(data, record, at));
    this.on = { go: (key, pane) => this.go(key, pane), select: (pane, key) => this.select(pane, key), toggle: (pane, key) => this.toggle(pane, key), drawn: (pane) => this.repaint(pane), covered: () => this.find("legend").offsetHeight + 12 };
    this.find = (id) => document.getElementById(id);
    this.panes = this.programs.map((program) => this.pane(program));
    this.active = this.panes[0];
    this.panel = new Panel(this.find("panel"), this.on);
    this.results = new Results(this.find("results"), this.on);
    this.colors();
    this.listen();
    this.panes.forEach((pane) => { pane.scene.open.clear(); this.openFirst(pane, "", pane.program.graphs[0], 64); pane.draw(); pane.fit(); });
    this.trees();
    this.select(this.active, null, false);
    this.readHash();
    document.documentElement.dataset.ready = "true";
  }

  pane(program) {
    const host = html("section", { class: "pane" });
    if (this.programs.length > 1) host.append(html("h3", {}, line("", program.name || `program ${program.number + 1}`), line("dim", `${program.graphs[0].size} nodes`)));
    this.find("panes").append(host);
    const pane = new Pane(host, program, this.on);
    pane.search = new Search(program, this.data.dtypes);
    pane.overlays = overlaysOf(program, this.data.overlays ?? [], this.data.itemsizes);
    pane.selected = null;
    pane.element.addEventListener("focus", () => this.activate(pane));
    pane.element.addEventListener("pointerdown", () => this.activate(pane), true);
    return pane;
  }

  /** Open what is alone on its level of a graph, so that the first picture of it says something. */
  openFirst(pane, prefix, graph, budget) {
    let members = graph.members(0);
    while (members.length && members.length <= 6) {
      const groups = members.filter((m) => m.group !== undefined);
      const largest = groups.sort((a, b) => graph.groups.count[b.group] - graph.groups.count[a.group])[0];
      if (!largest || graph.groups.kind[largest.group] !== KIND_MODULE) break;
      const inside = graph.members(largest.group);
      if ((budget -= inside.length) < 0) break;
      pane.scene.set(`${prefix}g${largest.group}`, true);
      members = inside;
    }
  }

  trees() {
    this.trees_ = new Map();
    for (const pane of this.panes) {
      const host = html("div", { class: "tree" });
      this.find("trees").append(host);
      this.trees_.set(pane, new Tree(host, pane.program, { go: (key) => this.go(key, pane) }));
    }
    this.activate(this.active);
  }

  activate(pane) {
    this.active = pane;
    this.panes.forEach((each) => each.element.classList.toggle("active", each === pane && this.panes.length > 1));
    for (const [each, tree] of this.trees_ ?? []) tree.host.hidden = each !== pane;
    if (this.panes.length > 1) this.legend();
  }

  // -- selection ----------------------------------------------------------------------------------

  select(pane, key, note = true) {
    this.activate(pane);
    pane.element.querySelector(".box.selected")?.classList.remove("selected");
    pane.selected = key;
    pane.boxes.get(key)?.box.element.classList.add("selected");
    this.light(pane, key);
    this.panel.show(pane, key, pane.overlays);
    this.trees_?.get(pane)?.select(key);
    if (note) {
      this.writeHash();
      this.follow(pane, key);
    }
  }

  light(pane, key) {
    if (!key) return pane.light("", null);
    const { prefix, kind, number } = splitKey(key.split(" ")[0]), graph = pane.program.graphAt(prefix);
    if (/ /.test(key)) return pane.light(prefix, new Set(pane.boxes.get(key).box.values));
    if (kind === "n") return pane.light(prefix, new Set([...graph.taken(number), ...graph.made(number)]));
    const level = levelOf(graph, number);
    return pane.light(prefix, new Set([...level.ins.keys(), ...level.outs.keys()]));
  }

  /** The node that the other program has in place of the selected one. */
  follow(pane, key) {
    const match = this.data.match, other = this.panes[1 - this.panes.indexOf(pane)];
    if (!match || !other || !key || !/^n\d+$/.test(key)) return;
    const n = Number(key.slice(1)), found = this.panes[0] === pane ? match[n] : match.indexOf(n);
    if (found >= 0) this.reveal(other, `n${found}`, true);
  }

  reveal(pane, key, mark = false) {
    const changed = pane.scene.reveal(key);
    if (changed) pane.draw();
    pane.center(key);
    if (mark) {
      pane.element.querySelector(".box.selected")?.classList.remove("selected");
      pane.selected = key;
      pane.boxes.get(key)?.box.element.classList.add("selected");
      this.light(pane, key);
    }
  }

  /** Show a box, with all around it open, and select it. */
  go(key, pane = this.active) {
    if (!key) return;
    if (/^g0$/.test(key)) { pane.fit(); this.select(pane, null); return; }
    this.reveal(pane, key);
    this.select(pane, key);
  }

  toggle(pane, key) {
    const { prefix, kind, number } = splitKey(key), graph = pane.program.graphAt(prefix);
    if (kind === "n" && !graph.calls.has(number)) return;
    if (kind === "g" && number === 0) return;
    pane.steady(key, () => {
      const open = !pane.scene.isOpen(key), calls = kind === "n" && open ? graph.calls.get(number) : [];
      pane.scene.set(key, open);
      calls.forEach(([, target], slot) => this.openFirst(pane, `${prefix}${number}.${slot}/`, pane.program.graphs[target], 24));
      pane.draw();
    });
    this.select(pane, key);
  }

  /** From the selected box along the values, to the neighbors, or to the box around. */
  step(direction) {
    const pane = this.active, key = pane.selected;
    if (!key || / /.test(key)) { this.select(pane, [...pane.boxes.keys()].find((each) => /n\d+$|g[1-9]\d*$/.test(each)) ?? null); pane.center(pane.selected); return; }
    const around = pane.scene.enclosing(key).filter((each) => !each.endsWith("g0")), outer = around[around.length - 1];
    if (direction === "out") { if (outer) this.go(outer); return; }
    const home = pane.boxes.get([...pane.scene.enclosing(key)].pop() ?? "g0")?.box ?? pane.shown;
    const at = home.children?.findIndex(({ box }) => box.key === key) ?? -1;
    if (at < 0) return;
    const here = home.children[at];
    const choices = direction === "up" || direction === "down"
      ? home.lines.filter((each) => each[direction === "up" ? "to" : "from"] === at).map((each) => home.children[each[direction === "up" ? "from" : "to"]])
      : home.children.filter(({ box, x }) => box !== here.box && (direction === "left" ? x < here.x : x > here.x));
    const near = (each) => Math.abs(each.x + each.box.w / 2 - here.x - here.box.w / 2) + 4 * (direction === "left" || direction === "right" ? Math.abs(each.y - here.y) : 0);
    const next = choices.sort((a, b) => near(a) - near(b))[0];
    if (next) { this.select(pane, next.box.key); pane.center(next.box.key); }
  }

  // -- colors -------------------------------------------------------------------------------------

  colors() {
    const select = this.find("colors"), names = [...new Set(this.panes.flatMap((pane) => pane.overlays.map((each) => each.name)))];
    select.append(html("option", { value: "" }, "no colors"));
    for (const name of names) { const option = html("option", { value: name }); option.textContent = name; select.append(option); }
    const given = (this.data.overlays ?? [])[0];
    select.value = given ? given.name : "";
    select.addEventListener("change", () => { this.panes.forEach((pane) => this.repaint(pane)); this.writeHash(); });
  }

  repaint(pane) {
    const overlay = pane.overlays.find((each) => each.name === this.find("colors").value);
    if (!overlay && !pane.painted) return;
    if (overlay) overlay.paint(pane);
    else for (const { box } of pane.boxes.values()) { const face = box.element.querySelector(":scope > .face"); if (face) face.style.fill = ""; box.element.classList.remove("unknown"); }
    pane.painted = Boolean(overlay);
    if (pane === this.active) this.legend();
    if (pane.selected) pane.boxes.get(pane.selected)?.box.element.classList.add("selected");
  }

  legend() {
    const overlay = this.active.overlays.find((each) => each.name === this.find("colors").value);
    this.find("legend").replaceChildren(...(overlay ? [overlay.legend((kind) => this.only(overlay, kind))] : []));
  }

  /** List the nodes of one kind. */
  only(overlay, kind) {
    const found = [];
    for (const graph of this.active.program.graphs) for (let n = 0; n < graph.size; n++) if (overlay.find(graph, n) === kind) found.push({ graph, node: n });
    this.results.show(this.active.program, found, kind);
  }

  // -- hash, keys, theme --------------------------------------------------------------------------

  /** The address of a box: names of calls, then the node or the module. */
  address(pane, key) {
    const { prefix, kind, number } = splitKey(key);
    let graph = pane.program.graphs[0];
    const steps = prefix.split("/").filter(Boolean).map((step) => {
      const [node, slot] = step.split("."), caller = graph;
      graph = pane.program.after(graph, step);
      return slot === undefined ? step : `${encodeURIComponent(caller.name(Number(node)))}.${slot}`;
    });
    return [...steps, kind === "n" ? `node=${encodeURIComponent(graph.name(number))}` : `group=${number}`].join("/");
  }

  writeHash() {
    const pane = this.active, parts = [];
    if (pane.selected && !/ /.test(pane.selected)) parts.push(this.address(pane, pane.selected));
    if (this.panes.indexOf(pane) > 0) parts.push("pane=1");
    if (this.find("colors").value) parts.push(`colors=${encodeURIComponent(this.find("colors").value)}`);
    if (location.protocol === "about:") return; // in a notebook's frame there is no address
    history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
  }

  readHash() {
    const parts = location.hash.slice(1).split("&").filter(Boolean);
    const value = (name) => { const part = parts.find((each) => each.startsWith(`${name}=`)); return part && decodeURIComponent(part.slice(name.length + 1)); };
    const pane = this.panes[Number(value("pane") ?? 0)] ?? this.panes[0], colors = value("colors");
    if (colors !== undefined) { this.find("colors").value = colors; this.panes.forEach((each) => this.repaint(each)); }
    const target = parts.find((part) => /(^|\/)(node|group)=/.test(part));
    const key = target && this.keyOf(pane.program, target);
    if (key) this.go(key, pane);
  }

  keyOf(program, address) {
    let graph = program.graphs[0], prefix = "";
    const steps = address.split("/"), last = steps.pop(), named = (g, name) => { for (let n = 0; n < g.size; n++) if (g.name(n) === name) return n; return -1; };
    for (const step of steps) {
      if (/^~\d+$/.test(step) && program.graphs[Number(step.slice(1))]?.callers.length === 0) {
        prefix += `${step}/`;
        graph = program.after(graph, step);
        continue;
      }
      const cut = step.lastIndexOf("."), node = named(graph, decodeURIComponent(step.slice(0, cut))), slot = Number(step.slice(cut + 1));
      const call = graph.calls.get(node)?.[slot];
      if (!call) return null;
      prefix += `${node}.${slot}/`;
      graph = program.graphs[call[1]];
    }
    const [kind, value] = [last.slice(0, last.indexOf("=")), decodeURIComponent(last.slice(last.indexOf("=") + 1))];
    if (kind === "group") return Number(value) < graph.groupCount() ? `${prefix}g${Number(value)}` : null;
    const node = named(graph, value);
    return node < 0 ? null : `${prefix}n${node}`;
  }

  listen() {
    const box = this.find("search");
    let wait = 0;
    box.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => this.search(), 60); });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { clearTimeout(wait); this.search(); this.results.go(this.results.at + (event.shiftKey ? -1 : 1)); event.preventDefault(); }
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { this.results.go(this.results.at + (event.key === "ArrowDown" ? 1 : -1)); event.preventDefault(); }
      if (event.key === "Escape") { box.value = ""; this.search(); this.active.element.focus(); }
      event.stopPropagation();
    });
    document.addEventListener("keydown", (event) => this.key(event));
    for (const [id, act] of [["fit", () => this.active.fit()], ["in", () => this.active.zoom(1.3)], ["out", () => this.active.zoom(1 / 1.3)], ["theme", () => this.theme()], ["help", () => this.help()]]) {
      this.find(id).addEventListener("click", act);
    }
    const room = new ResizeObserver(() => this.panes.forEach((pane) => { if (!pane.moved) pane.fit(); }));
    for (const id of ["panes", "legend"]) room.observe(this.find(id));
    addEventListener("hashchange", () => this.readHash());
    addEventListener("beforeprint", () => this.panes.forEach((pane) => { pane.element.setAttribute("viewBox", `0 0 ${pane.shown.w} ${pane.shown.h}`); pane.world.removeAttribute("transform"); }));
    addEventListener("afterprint", () => this.panes.forEach((pane) => { pane.element.removeAttribute("viewBox"); pane.apply(); }));
  }

  search() {
    const query = this.find("search").value;
    if (query === this.results.query && this.results.program === this.active.program) return;
    this.results.show(this.active.program, this.active.search.find(query), query);
    this.results.query = query;
    this.find("trees").hidden = Boolean(query);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const acts = {
      "/": () => this.find("search").focus(), Enter: () => this.active.selected && !/ /.test(this.active.selected) && this.toggle(this.active, this.active.selected),
      ArrowUp: () => this.step("up"), ArrowDown: () => this.step("down"), ArrowLeft: () => this.step("left"), ArrowRight: () => this.step("right"),
      Backspace: () => this.step("out"), f: () => this.active.fit(), "+": () => this.active.zoom(1.3), "=": () => this.active.zoom(1.3), "-": () => this.active.zoom(1 / 1.3),
      c: () => { const s = this.find("colors"); s.selectedIndex = (s.selectedIndex + 1) % s.options.length; s.dispatchEvent(new Event("change")); },
      t: () => this.theme(), s: () => this.save(), "?": () => this.help(), Escape: () => { this.find("keys").hidden = true; this.select(this.active, null); },
    };
    if (!acts[event.key] || (event.key === "Enter" && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    acts[event.key]();
  }

  theme() {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  help() {
    const keys = this.find("keys");
    if (!keys.firstChild) keys.append(html("h2", {}, "Keys"), ...KEYS.map(([key, what]) => html("div", {}, html("kbd", {}, key), line("", what))));
    keys.hidden = !keys.hidden;
  }

  /** Offer the picture as a file, with the styles that it needs. */
  save() {
    const { shown, element } = this.active, copy = element.cloneNode(true);
    copy.setAttribute("viewBox", `0 0 ${shown.w} ${shown.h}`);
    copy.setAttribute("xmlns", SVG);
    copy.querySelector("g").removeAttribute("transform");
    const style = svg("style");
    style.textContent = document.querySelector("style").textContent;
    copy.prepend(style);
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    html("a", { href: url, download: `${this.active.program.name || "graph"}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

(async () => {
  try {
    window.page = new Page(await decodeDocument(document.getElementById("data").textContent));
  } catch (error) {
    const note = document.getElementById("panel");
    note.textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  }
})();
