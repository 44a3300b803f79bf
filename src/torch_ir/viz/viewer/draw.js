// The scene as SVG: every text is set as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A smooth way down through points; lanes between rows stay straight. */
function pathOf(points) {
  let path = `M${points[0][0]},${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x1, y1] = points[i];
    if (Math.abs(x0 - x1) < 1) { path += `L${x1},${y1}`; continue; }
    const bend = y1 > y0 ? (y1 - y0) / 2 : 40;
    path += `C${x0},${y0 + bend} ${x1},${y1 - bend} ${x1},${y1}`;
  }
  return path;
}

/** One pane: a program drawn, moved and zoomed. */
class Pane {
  constructor(host, program, on) {
    this.program = program;
    this.scene = new Scene(program);
    this.on = on;
    this.view = { x: 0, y: 0, k: 1 };
    this.world = svg("g");
    this.element = svg("svg", { class: "graph", role: "application", tabindex: "0", "aria-label": `graph of ${program.name}` });
    this.element.append(svg("defs", {}, arrow("arrow"), arrow("arrow-lit")), this.world);
    host.append(this.element);
    this.marked = new Map(); // key of a box -> classes
    this.listen();
  }

  /** Draw the scene; what has not changed keeps its elements. */
  draw() {
    this.boxes = new Map();
    this.lines = [];
    this.shown = this.scene.root();
    this.world.replaceChildren(this.boxElement(this.shown, 0, 0));
    this.on.drawn?.(this);
  }

  boxElement(box, x, y) {
    this.boxes.set(box.key, { box, x, y });
    box.element ??= this.make(box);
    box.element.dataset.key = box.key;
    if (box.open) {
      for (const child of box.children) {
        const inner = this.boxElement(child.box, x + child.x, y + child.y);
        inner.setAttribute("transform", `translate(${child.x},${child.y})`);
        if (inner.parentNode !== box.element) box.element.append(inner);
      }
      for (const line of box.lines) this.lines.push(line);
    }
    return box.element;
  }

  make(box) {
    const group = svg("g", { class: `box ${box.kind}${box.open ? " open" : ""}${box.bare ? " bare" : ""}${box.calls ? " calls" : ""}` });
    if (box.bare) return this.withLines(group, box);
    if (box.times && !box.open) {
      for (const d of [6, 3]) group.append(svg("rect", { class: "under", x: d, y: d, width: box.w, height: box.h, rx: 6 }));
    }
    const round = box.kind === "in" || box.kind === "out" ? 11 : 6;
    group.append(svg("rect", { class: "face", width: box.w, height: box.h, rx: round }));
    if (box.open) this.header(group, box); else this.labels(group, box);
    return this.withLines(group, box);
  }

  withLines(group, box) {
    for (const line of box.lines ?? []) {
      line.element = svg("path", { class: "line", d: pathOf(line.points), "marker-end": "url(#arrow)" });
      const names = line.values.slice(0, 8).map((v) => `%${line.graph.valueName(v)}: ${line.graph.valueType(v)}`);
      const title = svg("title");
      title.textContent = names.join("\n") + (line.values.length > 8 ? `\n${line.values.length - 8} more` : "");
      line.element.append(title);
      group.append(line.element);
    }
    return group;
  }

  header(group, box) {
    group.append(svg("rect", { class: "head", width: box.w, height: HEADER, rx: 6 }));
    group.append(text("fold", 6, 18, "−"), text("title", 24, 18, box.title));
    const note = [box.note, box.times ? `× ${box.times}` : ""].filter(Boolean).join(" ");
    if (note) group.append(text("note", 34 + widthOf(box.title, "title"), 18, note));
  }

  labels(group, box) {
    if (box.kind === "in" || box.kind === "out") {
      group.append(text("title", 11, 15, box.title), text("detail", 17 + widthOf(box.title, "port"), 15, box.detail));
      return;
    }
    const opens = box.kind === "group" || box.calls;
    const at = opens ? 24 : 12;
    if (opens) group.append(text("fold", 6, 18, "+"));
    group.append(text("title", at, 18, box.title));
    if (box.note) group.append(text(box.times ? "times" : "note", at + 8 + widthOf(box.title, "title"), 18, box.note));
    group.append(text("detail", at, box.h - 10, box.detail));
  }

  // -- moving -------------------------------------------------------------------------------------

  apply() {
    this.moved = true;
    const { x, y, k } = this.view;
    this.world.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
  }

  size() { const r = this.element.getBoundingClientRect(); return [r.width || 800, r.height || 600]; }

  zoom(factor, cx, cy) {
    const [w, h] = this.size(), px = cx ?? w / 2, py = cy ?? h / 2;
    const k = Math.min(3, Math.max(0.02, this.view.k * factor)), ratio = k / this.view.k;
    this.view = { x: px - (px - this.view.x) * ratio, y: py - (py - this.view.y) * ratio, k };
    this.apply();
  }

  fit() {
    const [w, whole] = this.size(), h = whole - this.on.covered();
    const across = (w - 24) / this.shown.w, all = Math.min(across, (h - 24) / this.shown.h);
    const k = Math.min(1, all > 0.35 ? all : Math.max(Math.min(across, 1), 0.35));
    const top = this.shown.children[0], middle = across >= k || !top ? this.shown.w / 2 : top.x + top.box.w / 2;
    this.view = { x: w / 2 - middle * k, y: all >= k ? (h - this.shown.h * k) / 2 : 12, k };
    this.apply();
    this.moved = false; // it is fitted again when the window or the legend changes
  }

  /** Bring a box to the middle; of one that is larger than the view, the upper end of what is in it. */
  center(key) {
    const found = this.boxes.get(key);
    if (!found) return;
    const [w, h] = this.size(), { box } = found;
    const k = this.view.k < 0.5 ? 0.9 : this.view.k;
    const tall = box.h * k > h - 40, inner = box.w * k > w && box.children?.find((child) => child.box.kind !== "in");
    this.view = { k, x: w / 2 - (found.x + (inner ? inner.x + inner.box.w / 2 : box.w / 2)) * k, y: tall ? 20 - found.y * k : h / 2 - (found.y + box.h / 2) * k };
    this.apply();
  }

  /** Keep a box where it is on the screen while the drawing changes. */
  steady(key, change) {
    const before = this.boxes?.get(key);
    change();
    const after = this.boxes.get(key);
    if (!before || !after) return;
    const { k } = this.view, move = (b) => [b.x + Math.min(b.box.w, 300) / 2, b.y];
    const [x0, y0] = move(before), [x1, y1] = move(after);
    this.view.x += (x0 - x1) * k;
    this.view.y += (y0 - y1) * k;
    this.apply();
  }

  /** Zoom by what two fingers do to the distance between them, and move with their middle. */
  pinch(fingers, event) {
    const spread = () => { const [[x0, y0], [x1, y1]] = fingers.values(); return [Math.hypot(x1 - x0, y1 - y0), (x0 + x1) / 2, (y0 + y1) / 2]; };
    const [before, x0, y0] = spread();
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    const [after, x1, y1] = spread(), r = this.element.getBoundingClientRect();
    this.view = { ...this.view, x: this.view.x + x1 - x0, y: this.view.y + y1 - y0 };
    this.zoom(after / (before || after || 1), x1 - r.left, y1 - r.top);
    for (const id of fingers.keys()) this.element.setPointerCapture(id);
  }

  listen() {
    let drag = null;
    const fingers = new Map(); // where each finger on the drawing is
    this.element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const r = this.element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 200), event.clientX - r.left, event.clientY - r.top);
      else { this.view.x -= event.shiftKey ? event.deltaY : event.deltaX; this.view.y -= event.shiftKey ? 0 : event.deltaY; this.apply(); }
    }, { passive: false });
    this.element.addEventListener("pointerdown", (event) => {
      if (event.button === 0) drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, moved: false };
      if (event.pointerType === "touch") fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    for (const end of ["pointerup", "pointercancel"]) this.element.addEventListener(end, (event) => fingers.delete(event.pointerId));
    this.element.addEventListener("pointermove", (event) => {
      if (fingers.has(event.pointerId) && fingers.size === 2) { this.pinch(fingers, event); drag = null; return; }
      if (!drag || !(event.buttons & 1)) { drag = null; return; }
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      if (!drag.moved) { drag.moved = true; this.element.setPointerCapture(event.pointerId); }
      this.view = { ...drag.view, x: drag.view.x + dx, y: drag.view.y + dy };
      this.apply();
    });
    this.element.addEventListener("click", (event) => {
      const moved = drag?.moved;
      drag = null;
      if (moved) return;
      const key = event.target.closest?.(".box:not(.bare)")?.dataset.key;
      if (event.target.classList.contains("fold")) this.on.toggle(this, key); else this.on.select(this, key ?? null);
    });
    this.element.addEventListener("dblclick", (event) => {
      const key = event.target.closest?.(".box:not(.bare)")?.dataset.key;
      if (key && !event.target.classList.contains("fold")) this.on.toggle(this, key);
    });
  }

  /** Light up the lines that carry some values of one instance of a graph. */
  light(prefix, values) {
    for (const line of this.lines) {
      const lit = values && line.prefix === prefix && line.values.some((value) => values.has(value));
      line.element.classList.toggle("lit", Boolean(lit));
      line.element.setAttribute("marker-end", lit ? "url(#arrow-lit)" : "url(#arrow)");
    }
  }
}

function arrow(id) {
  const marker = svg("marker", { id, viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto" });
  marker.append(svg("path", { d: "M0,1L7,4L0,7Z", class: id }));
  return marker;
}

function text(kind, x, y, content) {
  const element = svg("text", { class: kind, x, y });
  element.textContent = content;
  return element;
}
