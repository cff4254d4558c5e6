"use strict";
// Zoom, hover and keyboard for the figures. The page is complete without it: the first window is drawn, details are
// in <title>. Positions are percentages of the window; nothing is made from text of the job but text.
for (const figure of document.querySelectorAll(".figure")) {
  const plot = figure.querySelector(".plot");
  const details = figure.querySelector(".details");
  const lanes = [...plot.querySelectorAll("svg.lane")];
  const items = [...plot.querySelectorAll("svg.i")];
  const placed = [...plot.querySelectorAll("[data-a]")];
  const ticks = [...plot.querySelectorAll(".t")];
  const low = Number(figure.dataset.low), high = Number(figure.dataset.high), origin = Number(figure.dataset.origin);
  const bytes = figure.dataset.unit === "bytes";
  const first = figure.dataset.first.split(" ").map(Number);
  const least = bytes ? 64 : 1000;
  let from = first[0], to = first[1], chosen = null;

  const size = (n) => {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (n >= 10240 && unit < 4) { n /= 1024; unit += 1; }
    return (unit ? n.toFixed(1) : Math.round(n)) + " " + units[unit];
  };
  const seconds = (n) => n >= 1e9 ? (n / 1e9).toFixed(3) + " s" : n >= 1e6 ? (n / 1e6).toFixed(3) + " ms" : (n / 1e3).toFixed(1) + " us";
  const nameOf = (at) => bytes ? "0x" + Math.max(0, origin + Math.round(at)).toString(16)
    : ((origin + at) / 1e9).toFixed(to - from < 5e6 ? 6 : 3) + " s";

  const clamp = (value) => Math.max(-1e6, Math.min(1e6, value)).toFixed(3) + "%";
  const draw = () => {
    const scale = 100 / (to - from);
    for (const item of placed) {
      const a = Number(item.dataset.a), b = Number(item.dataset.b);
      item.setAttribute("x", clamp((a - from) * scale));
      if (item.dataset.b !== undefined) item.setAttribute("width", clamp(Math.max(0.2, (b - a) * scale)));
    }
    ticks.forEach((tick, n) => tick.lastElementChild.replaceChildren(nameOf(from + (to - from) * n / ticks.length)));
    figure.querySelector(".window").textContent = (bytes ? size(to - from) : seconds(to - from)) + " shown";
  };
  const show = (begin, end) => {
    const wide = Math.min(Math.max(end - begin, least), high - low);
    from = Math.min(Math.max(begin, low), high - wide);
    to = from + wide;
    draw();
  };
  const zoom = (factor, around) => {
    const at = around === undefined ? (from + to) / 2 : around;
    const wide = Math.min(Math.max((to - from) * factor, least), high - low);
    show(at - (at - from) * wide / (to - from), at - (at - from) * wide / (to - from) + wide);
  };
  const move = (share) => show(from + (to - from) * share, to + (to - from) * share);
  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.3), right: () => move(0.3),
    all: () => show(low, high), first: () => show(first[0], first[1]),
  };

  for (const item of items) {  // the browser's own hint would cover the details
    const title = item.querySelector("title");
    item.about = title.textContent;
    title.remove();
    item.setAttribute("aria-label", item.about);
  }
  const tell = (item) => {
    if (chosen) chosen.classList.remove("on");
    chosen = item;
    if (item) item.classList.add("on");
    details.classList.toggle("chosen", Boolean(item));
    details.textContent = item ? item.about : "Point at something, or use the arrow keys; + and - zoom, 0 goes back, a shows all.";
  };
  // With the keyboard: along a lane, to the next lane, and into the window.
  const laneOf = (item) => item.closest("svg.lane");
  const within = (lane) => items.filter((item) => laneOf(item) === lane)
    .sort((one, other) => Number(one.dataset.a) - Number(other.dataset.a));
  const middle = (item) => (Number(item.dataset.a) + Number(item.dataset.b ?? item.dataset.a)) / 2;
  const choose = (item) => {
    if (!item) return;
    tell(item);
    const at = middle(item);
    if (at < from || at > to) show(at - (to - from) / 2, at + (to - from) / 2);
  };
  const step = (key) => {
    if (!chosen) {
      const visible = items.filter((item) => !item.classList.contains("life") && middle(item) >= from && middle(item) <= to);
      return choose(visible[0] ?? items[0]);
    }
    const mates = within(laneOf(chosen));
    if (key === "ArrowLeft") return choose(mates[mates.indexOf(chosen) - 1]);
    if (key === "ArrowRight") return choose(mates[mates.indexOf(chosen) + 1]);
    const filled = lanes.filter((lane) => within(lane).length);
    const next = filled[filled.indexOf(laneOf(chosen)) + (key === "ArrowUp" ? -1 : 1)];
    if (!next) return;
    const at = middle(chosen);
    choose(within(next).sort((one, other) => Math.abs(middle(one) - at) - Math.abs(middle(other) - at))[0]);
  };

  plot.tabIndex = 0;
  plot.classList.add("zooms");
  figure.querySelector(".tools").hidden = false;
  details.hidden = false;
  tell(null);
  figure.addEventListener("click", (event) => actions[event.target.dataset?.do]?.());
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.first, a: actions.all, Escape: () => tell(null) };
    if (event.key.startsWith("Arrow")) (event.shiftKey ? { ArrowLeft: actions.left, ArrowRight: actions.right }[event.key] ?? (() => {}) : () => step(event.key))();
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });
  plot.addEventListener("pointerover", (event) => {
    const item = event.target.closest?.("svg.i");
    if (item && !drag) tell(item);
  });
  const at = (event) => {
    const box = lanes[0].getBoundingClientRect();
    return from + (to - from) * (event.clientX - box.left) / box.width;
  };
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.altKey) return;  // the page scrolls
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
  }, { passive: false });
  plot.addEventListener("dblclick", (event) => zoom(0.5, at(event)));
  let drag = null;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.target.closest("svg.lane")) drag = { x: event.clientX, from, to };
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const shift = (drag.x - event.clientX) / lanes[0].getBoundingClientRect().width * (drag.to - drag.from);
    if (Math.abs(drag.x - event.clientX) > 2) show(drag.from + shift, drag.to + shift);
  });
  addEventListener("pointerup", () => { drag = null; });
}

// On paper everything is open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const item of closed) item.open = true;
});
addEventListener("afterprint", () => {
  for (const item of closed) item.open = false;
});
