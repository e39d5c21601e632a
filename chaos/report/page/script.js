(function () {
  "use strict";
  document.documentElement.classList.add("js");
  var $ = function (id) { return document.getElementById(id); };
  var copy = $("copy");
  if (copy) copy.onclick = function () {
    navigator.clipboard.writeText($("repeat").textContent).then(function () { copy.textContent = "copied"; });
  };
  var tl = $("tl"), inner = $("in-tl"), plot = $("plot"), read = $("read");
  if (!tl) return;
  var lasted = Number(tl.dataset.lasted), zoom = 1, most = 200;
  var left = function () { return tl.querySelector(".labels").offsetWidth; };

  // place keeps the share of the time that is under x (in pixels of the window) there.
  function set(to, x) {
    to = Math.min(most, Math.max(1, to));
    var wide = plot.getBoundingClientRect().width, from = tl.scrollLeft;
    var share = (from + x - left()) / wide;
    zoom = to;
    inner.style.width = zoom === 1 ? "" : "calc(" + left() + "px + (100% - " + left() + "px) * " + zoom + ")";
    tl.scrollLeft = share * plot.getBoundingClientRect().width - x + left();
    redraw();
  }
  function stamp(ms) {
    var s = ms / 1000, d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    var r = Math.round((s % 60) * 1000) / 1000;
    return (d ? d + "d" : "") + (h ? h + "h" : "") + (m ? m + "m" : "") + (r || s < 60 ? r + "s" : "") || "0s";
  }
  var steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6, 432e7];
  var NS = "http://www.w3.org/2000/svg";
  function el(name, attrs, text) {
    var e = document.createElementNS(NS, name);
    for (var k in attrs) e.setAttribute(k, attrs[k]);
    if (text) e.textContent = text;
    return e;
  }
  var whole = $("axis").innerHTML, wholeGrid = $("grid").innerHTML;
  function redraw() {
    var wide = plot.getBoundingClientRect().width;
    var seen = tl.scrollLeft / wide * 100;
    plot.querySelectorAll(".b text").forEach(function (t) { // a name stays in sight as long as its window is
      var box = t.previousElementSibling, x = parseFloat(box.getAttribute("x")), w = parseFloat(box.getAttribute("width"));
      t.setAttribute("x", (x < seen && x + w > seen ? seen : x) + "%");
      t.style.visibility = Number(t.dataset.r) / 100 * wide > t.getBBox().width + 5 ? "visible" : "hidden";
    });
    if (zoom === 1) { $("axis").innerHTML = whole; $("grid").innerHTML = wholeGrid; return; }
    var step = steps.find(function (s) { return s / lasted * wide > 85; }) || lasted;
    var first = Math.max(0, Math.floor((tl.scrollLeft - tl.clientWidth) / wide * lasted / step));
    var last = Math.ceil((tl.scrollLeft + 2 * tl.clientWidth) / wide * lasted / step);
    var axis = document.createDocumentFragment(), grid = document.createDocumentFragment();
    for (var i = first; i <= last && i * step <= lasted; i++) {
      var x = i * step / lasted * 100 + "%";
      axis.append(el("line", { class: "grid", x1: x, x2: x, y1: 16, y2: 22 }), el("text", { x: x, y: 13, dx: 2 }, stamp(i * step)));
      grid.append(el("line", { class: "grid", x1: x, x2: x, y1: 0, y2: "100%" }));
    }
    $("axis").replaceChildren(axis);
    $("grid").replaceChildren(grid);
  }
  var later;
  tl.addEventListener("scroll", function () { if (zoom > 1) { clearTimeout(later); later = setTimeout(redraw, 60); } });
  addEventListener("resize", redraw);
  var middle = function () { return left() + (tl.clientWidth - left()) / 2; };
  $("in").onclick = function () { set(zoom * 2, middle()); };
  $("out").onclick = function () { set(zoom / 2, middle()); };
  $("all").onclick = function () { set(1, 0); };
  tl.addEventListener("wheel", function (e) {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    set(zoom * Math.exp(-e.deltaY / 300), e.clientX - tl.getBoundingClientRect().left);
  }, { passive: false });
  tl.addEventListener("keydown", function (e) {
    if (e.key === "+" || e.key === "=") set(zoom * 2, middle());
    else if (e.key === "-") set(zoom / 2, middle());
    else if (e.key === "0") set(1, 0);
  });
  plot.addEventListener("dblclick", function (e) { set(zoom * 3, e.clientX - tl.getBoundingClientRect().left); });

  // Dragging moves the drawing; with shift it chooses the window to see.
  var drag = null;
  plot.addEventListener("pointerdown", function (e) {
    if (e.pointerType !== "mouse" || e.button !== 0) return;
    drag = { x: e.clientX, y: e.clientY, left: tl.scrollLeft, top: tl.scrollTop, window: e.shiftKey };
    if (drag.window) { drag.box = el("rect", { class: "band", y: 0, height: "100%" }); plot.append(drag.box); }
    plot.setPointerCapture(e.pointerId);
    plot.classList.toggle("drag", !drag.window);
  });
  plot.addEventListener("pointermove", function (e) {
    if (!drag) return;
    if (drag.window) {
      var from = plot.getBoundingClientRect().left;
      drag.box.setAttribute("x", Math.min(drag.x, e.clientX) - from);
      drag.box.setAttribute("width", Math.abs(e.clientX - drag.x));
      return;
    }
    tl.scrollLeft = drag.left - (e.clientX - drag.x);
    tl.scrollTop = drag.top - (e.clientY - drag.y);
  });
  plot.addEventListener("pointerup", function (e) {
    if (drag && drag.window) {
      drag.box.remove();
      var width = Math.abs(e.clientX - drag.x), box = plot.getBoundingClientRect();
      if (width > 4) {
        var share = (Math.min(drag.x, e.clientX) - box.left) / box.width;
        set(zoom * (tl.clientWidth - left()) / width, left());
        tl.scrollLeft = share * plot.getBoundingClientRect().width;
      }
    }
    drag = null;
    plot.classList.remove("drag");
  });

  // What is pointed at is read out above the drawing.
  var hint = matchMedia("(hover: hover)").matches
    ? "Ctrl and wheel zoom, dragging moves, shift and dragging choose a window; point at anything for what it is."
    : "Tap anything for what it is.";
  read.textContent = hint;
  function tell(e) {
    for (var n = e.target, t = null; n && n !== plot && !t; n = n.parentNode) t = n.querySelector(":scope > title");
    if (!t) return;
    var row = e.target.closest("[data-l]");
    read.textContent = (row ? row.dataset.l + ": " : "") + t.textContent;
  }
  plot.addEventListener("pointerover", tell);
  plot.addEventListener("click", tell);

  // Links with a time go there.
  document.addEventListener("click", function (e) {
    var a = e.target.closest("a[data-at]");
    if (!a) return;
    e.preventDefault();
    if (zoom < 8) set(8, middle());
    tl.scrollIntoView({ block: "start", behavior: "smooth" });
    tl.scrollLeft = Number(a.dataset.at) * plot.getBoundingClientRect().width - (tl.clientWidth - left()) / 2;
    tl.querySelectorAll(".labels div").forEach(function (l) {
      if (a.dataset.on && l.textContent === a.dataset.on) tl.scrollTop = l.offsetTop - tl.clientHeight / 3;
    });
    var v = a.dataset.id && $(a.dataset.id);
    if (v) { var l = v.querySelector("line"); l.classList.remove("found"); void l.getBoundingClientRect(); l.classList.add("found"); }
    redraw();
  });
  redraw();
})();
