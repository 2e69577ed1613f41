"use strict";
// Draws a document (eris/web/blocks.py): sections of blocks, each of them data alone. Every plot can be
// saved as SVG, PNG and CSV; series are switched on and off by their names in the legend.
(() => {
  const SVG = "http://www.w3.org/2000/svg", WIDTH = 440, HEIGHT = 260, COLOURS = 8;
  const EDGE = { left: 54, right: 14, top: 12, bottom: 38 };
  const hidden = new Set();  // "block/series" that the reader switched off

  const make = (space, name, attributes, children) => {
    const node = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {}))
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
    for (const child of [children ?? []].flat(2)) node.append(child);
    return node;
  };
  const html = (name, attributes, children) => make(null, name, attributes, children);
  const svg = (name, attributes, children) => make(SVG, name, attributes, children);
  const colour = index => "c" + (index % COLOURS);
  const dashed = index => index >= COLOURS ? " dashed" : "";  // of more lines than there are colours
  const prose = text => text.split("`").map((part, index) => index % 2 ? html("code", {}, part) : part);
  const number = value => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (value === 0 || (Number.isInteger(value) && Math.abs(value) < 1e6)) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  };

  // -- axes ---------------------------------------------------------------------------------------
  const ticks = (low, high, whole) => {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max([1, 2, 5, 10].map(one => one * power).find(one => one >= rough), whole ? 1 : 0);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    return found;
  };
  const range = (values, zero) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return [0, 1];
    const above = low >= 0;
    if (zero && above) low = 0;
    if (low === high) { const room = Math.abs(low) / 10 || 1; return [above ? Math.max(0, low - room) : low - room, high + room]; }
    const room = (high - low) * 0.04;
    return [above && low < room ? 0 : low - room, high + room];
  };
  const short = value => {
    const size = Math.abs(value);
    if (size >= 1e9) return number(value / 1e9) + " G";
    if (size >= 1e6) return number(value / 1e6) + " M";
    if (size >= 1e4) return number(value / 1e3) + " k";
    return number(value);
  };
  const frame = (block, xs, ys, height = HEIGHT, left = EDGE.left) => {
    const [x0, x1] = range(xs), [y0, y1] = ys ? range(ys, block.zero) : [0, 1];
    const right = WIDTH - EDGE.right, bottom = height - EDGE.bottom;
    const at = (value, from, to, start, stop) => start + (value - from) / (to - from) * (stop - start);
    const x = value => at(value, x0, x1, left, right), y = value => at(value, y0, y1, bottom, EDGE.top);
    const parts = [];
    for (const tick of ticks(x0, x1, block.x === "round")) parts.push(
      svg("line", { class: "rule", x1: x(tick), x2: x(tick), y1: EDGE.top, y2: bottom }),
      svg("text", { class: "tick", x: x(tick), y: bottom + 15, "text-anchor": "middle" }, short(tick)));
    for (const tick of ys ? ticks(y0, y1) : []) parts.push(
      svg("line", { class: "rule", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
    for (const [name, value] of ys && block.levels || []) if (value >= y0 && value <= y1) parts.push(
      svg("line", { class: "level", x1: left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: right - 2, y: y(value) - 4, "text-anchor": "end" }, name));
    parts.push(svg("text", { class: "tick", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, block.x || ""));
    if (ys) parts.push(svg("text", { class: "tick", transform: `translate(13 ${(EDGE.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, block.y || ""));
    const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${block.title}: ${block.y || ""} by ${block.x || ""}` }, parts);
    return { root, x, y, right, bottom };
  };

  // -- what the pointer and the keyboard ask for ----------------------------------------------------
  const tip = html("div", { class: "tip", hidden: true, role: "status" });
  const tell = (node, text) => {
    node.setAttribute("data-tip", text);
    if (node.hasAttribute("tabindex")) node.setAttribute("aria-label", text);
    return node;
  };
  for (const one of ["mouseover", "focusin"]) document.addEventListener(one, event => {  // one for all: marks come and go
    const node = event.target.closest("[data-tip]");
    tip.hidden = node === null;
    if (node === null) return;
    const box = node.getBoundingClientRect();
    tip.textContent = node.getAttribute("data-tip");
    tip.style.left = `${Math.min(window.scrollX + box.right + 6, window.scrollX + innerWidth - 240)}px`;
    tip.style.top = `${window.scrollY + box.top - 6}px`;
  });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  const legend = (block, names, redraw) => html("ul", { class: "keys" }, names.map((name, index) => {
    const key = `${block.title}/${name}`;
    const press = event => {
      hidden.has(key) ? hidden.delete(key) : hidden.add(key);
      event.currentTarget.setAttribute("aria-pressed", !hidden.has(key));
      redraw();
    };
    return html("li", {}, html("button", { type: "button", class: colour(index), "aria-pressed": String(!hidden.has(key)), onclick: press },
      [html("span", { class: "swatch" }), name]));
  }));

  // -- plots ----------------------------------------------------------------------------------------
  const lines = block => {
    const plot = html("div");
    const redraw = () => {
      const shown = block.series.map((one, index) => ({ ...one, index })).filter(one => !hidden.has(`${block.title}/${one.name}`));
      const points = shown.flatMap(one => one.points);
      const { root, x, y } = frame(block, points.map(p => p[0]), [...points.map(p => p[1]), ...(block.levels || []).map(l => l[1])]);
      for (const one of shown) {
        let path = "", pen = "M";
        for (const [px, py] of one.points) if (py === null) pen = "M"; else { path += `${pen}${x(px).toFixed(1)} ${y(py).toFixed(1)}`; pen = "L"; }
        // Lines that lie on each other are seen both: of few, the earlier one is the wider.
        const wide = shown.length < 4 ? ` wide${shown.length - 1 - shown.indexOf(one)}` : "";
        root.append(svg("path", { class: `line ${colour(one.index)}${dashed(one.index)}${wide}`, d: path }));
        if (points.length <= 240) for (const [px, py] of one.points) if (py !== null)
          root.append(tell(svg("circle", { class: `fill ${colour(one.index)}`, cx: x(px), cy: y(py), r: 3 }), `${one.name}: ${block.x} ${number(px)}, ${block.y} ${number(py)}`));
      }
      plot.replaceChildren(root);
    };
    redraw();
    return [plot, block.series.length > 1 ? html("div", { class: "scroll few" }, legend(block, block.series.map(one => one.name), redraw)) : []];
  };
  const marks = block => {
    const { root, x, y } = frame(block, block.marks.map(m => m.x), block.marks.map(m => m.y));
    const groups = [...new Set(block.marks.map(m => m.group))];
    const front = block.marks.filter(m => block.front.includes(m.name)).sort((a, b) => a.x - b.x);
    if (front.length > 1) root.append(svg("path", { class: "level", fill: "none", d: "M" + front.map(m => `${x(m.x)} ${y(m.y)}`).join("L") }));
    for (const mark of block.marks) {
      root.append(tell(svg("circle", { class: `fill ${colour(groups.indexOf(mark.group))}`, cx: x(mark.x), cy: y(mark.y), r: 5, tabindex: 0 }),
        `${mark.name}: ${block.x} ${number(mark.x)}, ${block.y} ${number(mark.y)}`));
      const before = x(mark.x) > WIDTH * 0.7;  // the name stays within the picture
      if (block.marks.length <= 20) root.append(svg("text", { class: "tick", x: x(mark.x) + (before ? -8 : 8), y: y(mark.y) - 6, "text-anchor": before ? "end" : "start" }, mark.name));
    }
    return root;
  };
  const ranges = block => {
    const step = 20, left = 132, height = EDGE.top + EDGE.bottom + block.ranges.length * step;
    const { root, x } = frame(block, [...block.ranges.flatMap(one => [one.value, one.low ?? one.value, one.high ?? one.value]), ...block.levels.map(l => l[1])], null, height, left);
    for (const [name, value] of block.levels) root.append(
      svg("line", { class: "level", x1: x(value), x2: x(value), y1: EDGE.top, y2: height - EDGE.bottom }),
      svg("text", { class: "tick", x: x(value), y: EDGE.top - 2, "text-anchor": "middle" }, name));
    block.ranges.forEach((one, index) => {
      const middle = EDGE.top + (index + 0.5) * step, text = `${one.name}: ${number(one.value)}` + (one.low === null ? "" : ` (${number(one.low)} to ${number(one.high)})`);
      root.append(svg("text", { class: "tick", x: left - 8, y: middle + 4, "text-anchor": "end" }, one.name.length > 22 ? one.name.slice(0, 21) + "…" : one.name));
      if (one.low !== null) root.append(svg("line", { class: "whisker c0", x1: x(one.low), x2: x(one.high), y1: middle, y2: middle }));
      root.append(tell(svg("circle", { class: "fill c0", cx: x(one.value), cy: middle, r: 4.5, tabindex: 0 }), text));
    });
    return root;
  };
  const spans = block => {
    const rows = [...new Set(block.spans.map(one => one.row))], people = [...new Set(block.spans.map(one => one.who))];
    const step = Math.max(5, Math.min(22, 700 / rows.length)), height = EDGE.top + EDGE.bottom + rows.length * step;
    const { root, x } = frame(block, block.spans.flatMap(one => [one.start - 0.5, one.stop - 0.5]), null, height);
    rows.forEach((row, index) => { if (step >= 10) root.append(svg("text", { class: "tick", x: EDGE.left - 6, y: EDGE.top + index * step + step / 2 + 4, "text-anchor": "end" }, row)); });
    for (const one of block.spans) {
      const top = EDGE.top + rows.indexOf(one.row) * step, left = x(one.start - 0.5), wide = Math.max(1, x(one.stop - 0.5) - left - 1);
      root.append(tell(svg("rect", { class: `fill ${colour(people.indexOf(one.who))}`, x: left, y: top + 1, width: wide, height: step - 2 }),
        `${one.row}: ${one.who}, ${block.x} ${number(one.start)} to ${number(one.stop - 1)}`));
      if (wide > 7 * one.who.length && step >= 14) root.append(svg("text", { x: left + 4, y: top + step / 2 + 4, "pointer-events": "none", class: "within" }, one.who));
    }
    return root;
  };
  const grid = block => {
    const most = Math.max(1e-12, ...block.values.flat().filter(v => v !== null));
    const cell = Math.max(2.5, Math.min(26, 440 / Math.max(block.columns.length, 1))), named = cell >= 11, left = 90, top = named ? 70 : 20;
    const root = svg("svg", { viewBox: `0 0 ${Math.max(WIDTH, left + cell * block.columns.length + 14)} ${top + cell * block.rows.length + 24}`, role: "img", "aria-label": `${block.title} in ${block.unit}` });
    block.rows.forEach((row, i) => {
      if (named) root.append(svg("text", { class: "tick", x: left - 5, y: top + i * cell + cell / 2 + 4, "text-anchor": "end" }, row));
      block.columns.forEach((column, j) => {
        const value = block.values[i][j];
        if (value !== null) root.append(tell(svg("rect", { class: "fill c0", x: left + j * cell, y: top + i * cell, width: cell - 0.6, height: cell - 0.6, "fill-opacity": (0.06 + 0.94 * value / most).toFixed(3) }),
          `${block.down} ${row} ${block.across} ${column}: ${number(value)} ${block.unit}`));
      });
    });
    if (named) block.columns.forEach((column, j) => root.append(svg("text", { class: "tick", transform: `translate(${left + j * cell + cell / 2 + 4} ${top - 5}) rotate(-60)` }, column)));
    root.append(svg("text", { class: "tick", x: left, y: top + cell * block.rows.length + 16 }, `darkest: ${short(most)} ${block.unit}`));
    return root;
  };

  const ranks = block => new Map([...new Set(block.owners)].filter(owner => block.seats.some(one => one.name === owner)).map((owner, i) => [owner, i]));
  const seat = (one, rank) => !one.well ? "ill" : rank === undefined ? "fill idle" : `fill ${colour(rank)}`;
  const ring = block => {
    const rank = ranks(block), size = 440, middle = size / 2, count = block.seats.length, places = new Map(block.seats.map((one, i) => [one.name, i]));
    const at = (turn, radius) => [middle + radius * Math.sin(turn), middle - radius * Math.cos(turn)];
    const root = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `${block.title}: ${block.centre}` });
    const radius = 130, dot = Math.max(2.5, Math.min(13, 330 / count));
    block.owners.forEach((owner, shard) => {
      const slot = 2 * Math.PI / block.owners.length, gap = Math.min(0.02, 0.06 * slot), from = shard * slot + gap, to = (shard + 1) * slot - gap;
      const [x0, y0] = at(from, 195), [x1, y1] = at(to, 195);
      const known = rank.has(owner), arc = svg("path", { class: known ? `arc ${colour(rank.get(owner))}` : "arc waits", d: `M${x0} ${y0}A195 195 0 ${to - from > Math.PI ? 1 : 0} 1 ${x1} ${y1}` });
      root.append(tell(arc, `shard ${shard}: ${owner ?? "waits"}`));
      if (known && block.owners.length <= 64) {
        const [mx, my] = at((from + to) / 2, 185), [nx, ny] = at(2 * Math.PI * (places.get(owner) + 0.5) / count, radius + dot);
        root.append(svg("line", { class: `spoke ${colour(rank.get(owner))}`, x1: mx, y1: my, x2: nx, y2: ny }));
      }
    });
    block.seats.forEach((one, i) => {
      const turn = 2 * Math.PI * (i + 0.5) / count, [x, y] = at(turn, radius), [tx, ty] = at(turn, radius - dot - 8);
      root.append(tell(svg("circle", { class: seat(one, rank.get(one.name)), cx: x, cy: y, r: dot, tabindex: count <= 30 ? 0 : null }), `${one.name}: ${one.word}`));
      if (count <= 24) root.append(svg("text", { class: "tick", x: tx, y: ty + 4, "text-anchor": Math.abs(tx - middle) < 20 ? "middle" : tx > middle ? "end" : "start" }, one.name));
    });
    root.append(svg("text", { class: "centre", x: middle, y: middle + 4, "text-anchor": "middle" }, block.centre));
    return root;
  };

  // -- what is no plot ------------------------------------------------------------------------------
  const QUANTITY = /^[\d.,]+ ?([kMGT]?B|%|s)?$/;
  const counts = value => typeof value === "number" || (typeof value === "string" && QUANTITY.test(value));
  const figures = block => block.columns.map((_, column) => block.rows.some(row => counts(row[column])) && block.rows.every(row => row[column] === null || row[column] === "–" || counts(row[column])));
  const table = block => {
    const numeric = figures(block);
    const kind = column => numeric[column] ? { class: "number" } : {};
    return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": block.title }, html("table", {}, [
      html("thead", {}, html("tr", {}, block.columns.map((name, column) => html("th", { scope: "col", ...kind(column) }, name)))),
      html("tbody", {}, block.rows.map(row => html("tr", {}, row.map((value, column) => html("td", kind(column), value?.href ? html("a", { href: value.href }, value.text) : number(value)))))),
    ]));
  };
  const text = block => html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": block.title }, html("pre", {}, block.text));
  // Where only values changed, they alone are written anew: a table of all nodes is large.
  const alter = {
    table: (card, old, block) => {
      const plain = rows => rows.every(row => row.every(value => value === null || typeof value !== "object"));
      if (String(old.columns) !== String(block.columns) || String(figures(old)) !== String(figures(block)) || old.rows.length !== block.rows.length || !plain(old.rows) || !plain(block.rows)) return false;
      const drawn = card.querySelector("tbody").rows;
      block.rows.forEach((row, i) => row.forEach((value, j) => { if (value !== old.rows[i][j]) drawn[i].cells[j].textContent = number(value); }));
      return true;
    },
    ring: (card, old, block) => {
      const names = one => JSON.stringify([one.owners, one.seats.map(seat => seat.name)]);
      if (names(old) !== names(block)) return false;
      const drawn = card.querySelectorAll("circle"), rank = ranks(block);
      block.seats.forEach((one, i) => {
        if (one.word !== old.seats[i].word) tell(drawn[i], `${one.name}: ${one.word}`);
        if (one.well !== old.seats[i].well) drawn[i].setAttribute("class", seat(one, rank.get(one.name)));
      });
      card.querySelector("text.centre").textContent = block.centre;
      return true;
    },
  };
  const images = block => html("div", { class: "images" }, block.images.map(([caption, source]) =>
    html("figure", {}, [html("img", { src: source, alt: caption }), html("figcaption", { class: "faint" }, caption)])));
  const DRAW = { lines, marks, ranges, spans, grid, ring, table, text, images };

  // -- saving ---------------------------------------------------------------------------------------
  const rows = {
    lines: block => [["series", block.x, block.y], ...block.series.flatMap(one => one.points.map(point => [one.name, ...point]))],
    marks: block => [["name", block.x, block.y, "group"], ...block.marks.map(m => [m.name, m.x, m.y, m.group])],
    spans: block => [["row", "first", "last", "who"], ...block.spans.map(one => [one.row, one.start, one.stop - 1, one.who])],
    ranges: block => [["name", block.x, "low", "high"], ...block.ranges.map(one => [one.name, one.value, one.low, one.high])],
    grid: block => [[`${block.down} \\ ${block.across}`, ...block.columns], ...block.values.map((values, i) => [block.rows[i], ...values])],
    ring: block => [["shard", "owner"], ...block.owners.map((owner, shard) => [shard, owner])],
    table: block => [block.columns, ...block.rows.map(row => row.map(value => value?.href ? value.text : value))],
  };
  const csv = block => rows[block.kind](block).map(row => row.map(value => {
    const plain = value === null || value === undefined ? "" : String(value);
    // A cell that begins like a formula is read as one by spreadsheets.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(plain) ? "'" + plain : plain;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }).join(",")).join("\r\n") + "\r\n";
  const save = (name, blob) => {
    const link = html("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const standing = drawn => {  // a picture that needs no style sheet
    const copy = drawn.cloneNode(true), [, , wide, high] = drawn.getAttribute("viewBox").split(" ").map(Number);
    const pairs = [[drawn, copy], ...[...drawn.querySelectorAll("*")].map((node, i) => [node, copy.querySelectorAll("*")[i]])];
    for (const [from, to] of pairs) {
      const style = getComputedStyle(from);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size"]) to.setAttribute(name, style.getPropertyValue(name));
    }
    copy.setAttribute("xmlns", SVG); copy.setAttribute("width", wide); copy.setAttribute("height", high);
    copy.prepend(svg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).getPropertyValue("--card") }));
    return { source: new XMLSerializer().serializeToString(copy), wide, high };
  };
  const png = (drawn, name) => {
    const { source, wide, high } = standing(drawn), image = new Image(), canvas = html("canvas", { width: 2 * wide, height: 2 * high });
    image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, 2 * wide, 2 * high); canvas.toBlob(blob => save(name + ".png", blob)); };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(source);
  };
  const saves = (block, body) => {
    if (!rows[block.kind]) return [];
    const name = block.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    const button = (label, act) => html("button", { type: "button", "aria-label": `Save ${block.title} as ${label}`, onclick: act }, label);
    const drawn = () => body.querySelector("svg");
    const pictures = block.kind === "table" ? [] : [button("SVG", () => save(name + ".svg", new Blob([standing(drawn()).source], { type: "image/svg+xml" }))), button("PNG", () => png(drawn(), name))];
    return html("div", { class: "saves" }, ["save as", ...pictures, button("CSV", () => save(name + ".csv", new Blob([csv(block)], { type: "text/csv" })))]);
  };

  // -- the page -------------------------------------------------------------------------------------
  const slug = title => "s-" + title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const card = block => {
    const body = html("div", {}, DRAW[block.kind](block));
    const wide = ["table", "text", "images"].includes(block.kind);
    return html("article", { class: wide ? "block wide" : "block" }, [html("h3", {}, block.title), block.note ? html("p", { class: "faint" }, prose(block.note)) : [], body, saves(block, body)]);
  };
  const drawn = new Map();  // by section and title: a card, and what it shows
  const focusable = "button, a, [tabindex]";
  const replaced = (old, card) => {  // who was reading goes on at the same place
    const inside = [...old.querySelectorAll(focusable)], index = inside.indexOf(document.activeElement);
    const scrolled = [...old.querySelectorAll(".scroll")].map(one => one.scrollTop);
    old.replaceWith(card);
    card.querySelectorAll(".scroll").forEach((one, i) => { one.scrollTop = scrolled[i] ?? 0; });
    if (index >= 0) card.querySelectorAll(focusable)[index]?.focus({ preventScroll: true });
  };
  const same = (key, shown, build) => {
    const text = JSON.stringify(shown), known = drawn.get(key);
    if (known?.text === text) return known.node;
    const altered = known && shown.kind === known.shown.kind && shown.note === known.shown.note && alter[shown.kind]?.(known.node, known.shown, shown);
    const node = altered ? known.node : build();
    if (known && !altered) replaced(known.node, node);
    drawn.set(key, { text, node, shown });
    return node;
  };
  const header = page => html("div", {}, [
    html("h1", {}, page.title), html("p", { class: "faint" }, page.subtitle),
    page.alerts.map(alert => html("p", { class: "alert", role: "alert" }, prose(alert))),
    html("dl", { class: "facts" }, page.facts.map(([name, value]) => html("div", {}, [html("dt", {}, name), html("dd", {}, value)]))),
  ]);
  const contents = page => html("ul", {}, [
    page.links.map(one => html("li", {}, html("a", { href: one.href }, one.text))),
    page.sections.map(one => html("li", {}, html("a", { href: "#" + slug(one.title) }, one.title))),
  ]);
  const sections = page => page.sections.map(one => html("section", { id: slug(one.title), "aria-label": one.title }, [
    html("h2", {}, one.title), one.note ? html("p", {}, prose(one.note)) : [],
    html("div", { class: "blocks" }, one.blocks.map(block => same(`${one.title}/${block.title}`, block, () => card(block)))),
  ]));
  let outline = "";
  const show = page => {
    const { title, subtitle, alerts, facts, links } = page;
    const top = same("top", { title, subtitle, alerts, facts }, () => header(page));
    const list = same("contents", [links, page.sections.map(one => one.title)], () => contents(page));
    if (!top.isConnected) document.getElementById("top").replaceChildren(top);
    if (!list.isConnected) document.getElementById("contents").replaceChildren(list);
    const now = JSON.stringify(page.sections.map(one => [one.title, one.note, one.blocks.map(block => block.title)]));
    if (now !== outline) document.getElementById("content").replaceChildren(...sections(page));
    else for (const one of page.sections) for (const block of one.blocks) same(`${one.title}/${block.title}`, block, () => card(block));
    outline = now;
    document.title = `${title} · ERIS`;
  };
  document.body.append(tip);
  show(JSON.parse(document.getElementById("document").textContent));

  const { events } = document.body.dataset;
  if (events) {
    const lost = html("p", { class: "alert", role: "alert", hidden: true }, "The connection is lost; what is shown may be old. Trying again …");
    document.getElementById("top").before(lost);
    const stream = new EventSource(events);
    stream.onmessage = event => {
      const began = performance.now();
      lost.hidden = true;
      show(JSON.parse(event.data));
      document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
      document.body.dataset.slowest = Math.max(Number(document.body.dataset.slowest || 0), performance.now() - began).toFixed(1);
    };
    stream.onerror = () => { lost.hidden = false; };
  }
})();
