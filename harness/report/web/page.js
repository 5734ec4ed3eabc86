(function () {
"use strict";
var doc = document, root = doc.documentElement;
function all(sel, in_) { return Array.prototype.slice.call((in_ || doc).querySelectorAll(sel)); }

// The colour scheme: the system's, until somebody chooses another.
var theme = doc.getElementById("theme"), schemes = ["system", "light", "dark"], scheme = "system";
try { scheme = localStorage.getItem("conform-theme") || "system"; } catch (e) { /* not from file:// everywhere */ }
function paint() {
  if (schemes.indexOf(scheme) < 0) scheme = "system";
  if (scheme === "system") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", scheme);
  theme.textContent = "Theme: " + scheme;
}
theme.hidden = false;
theme.addEventListener("click", function () {
  scheme = schemes[(schemes.indexOf(scheme) + 1) % schemes.length];
  paint();
  try { localStorage.setItem("conform-theme", scheme); } catch (e) { /* then it lasts as long as the page */ }
});
paint();

// What an event is, for a pointer and for the focus.
var tip = doc.getElementById("tip");
function show(mark) {
  tip.textContent = "";
  mark.getAttribute("aria-label").split(" \u00b7 ").forEach(function (part, i) {
    var p = doc.createElement(i ? "div" : "b");
    p.textContent = part;
    tip.appendChild(p);
  });
  tip.hidden = false;
  var m = mark.getBoundingClientRect(), t = tip.getBoundingClientRect();
  var x = Math.max(6, Math.min(m.left + m.width / 2 - t.width / 2, root.clientWidth - t.width - 6));
  var y = m.bottom + 6;
  if (y + t.height > root.clientHeight - 6) y = Math.max(6, m.top - t.height - 6);
  tip.style.left = x + "px";
  tip.style.top = y + "px";
}
function hide() { tip.hidden = true; }
function markOf(e) { return e.target.closest ? e.target.closest(".mark") : null; }
function walk(mark, to) {
  var marks = all(".mark", mark.ownerSVGElement), next = marks[Math.max(0, Math.min(to(marks.indexOf(mark), marks.length), marks.length - 1))];
  marks.forEach(function (m) { m.setAttribute("tabindex", m === next ? "0" : "-1"); });
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "center" });
}
var keys = {
  ArrowRight: function (i) { return i + 1; }, ArrowDown: function (i) { return i + 1; },
  ArrowLeft: function (i) { return i - 1; }, ArrowUp: function (i) { return i - 1; },
  Home: function () { return 0; }, End: function (i, n) { return n - 1; }
};
doc.addEventListener("mouseover", function (e) {
  var m = markOf(e);
  if (m) show(m); else if (!tip.contains(e.target) && !markOf({ target: doc.activeElement })) hide(); // the focus keeps its own
});
doc.addEventListener("focusin", function (e) { var m = markOf(e); if (m) show(m); else hide(); });
doc.addEventListener("keydown", function (e) {
  if (e.key === "Escape") hide();
  var m = markOf(e);
  if (m && keys[e.key]) { e.preventDefault(); walk(m, keys[e.key]); }
});
addEventListener("scroll", function () { if (!tip.hidden && !markOf({ target: doc.activeElement })) hide(); }, { passive: true });

// The events that a story names lead to their marks.
doc.addEventListener("click", function (e) {
  var ref = e.target.closest && e.target.closest("a.ref");
  if (!ref) return;
  var mark = doc.getElementById(ref.getAttribute("href").slice(1));
  if (!mark) return;
  e.preventDefault();
  walk(mark, function (i) { return i; });
});
["mouseover", "mouseout"].forEach(function (on) {
  doc.addEventListener(on, function (e) {
    var ref = e.target.closest && e.target.closest("a.ref"), mark = ref && doc.getElementById(ref.getAttribute("href").slice(1));
    if (mark) mark.classList.toggle("hot", on === "mouseover");
  });
});

// Filters.
var filters = doc.getElementById("filters");
if (filters) {
  var chips = all(".chip", filters), rule = doc.getElementById("by-rule"), where = doc.getElementById("by-where");
  var findings = all("article.finding"), shown = doc.getElementById("shown");
  var filter = function () {
    var on = {}, n = 0;
    chips.forEach(function (c) { on[c.getAttribute("data-verdict")] = c.getAttribute("aria-pressed") === "true"; });
    findings.forEach(function (f) {
      f.hidden = !(on[f.getAttribute("data-verdict")] && (!rule.value || f.getAttribute("data-rule") === rule.value) &&
        (!where.value || f.getAttribute("data-where") === where.value));
      if (!f.hidden) n++;
    });
    shown.textContent = n + " of " + findings.length + " shown";
  };
  chips.forEach(function (c) {
    c.addEventListener("click", function () {
      c.setAttribute("aria-pressed", c.getAttribute("aria-pressed") === "true" ? "false" : "true");
      filter();
    });
  });
  rule.addEventListener("change", filter);
  where.addEventListener("change", filter);
  filters.hidden = false;
  filter();
  // A link to a finding that is filtered away shows all.
  var reveal = function () {
    var f = doc.getElementById(location.hash.slice(1));
    if (!f || !f.hidden) return;
    chips.forEach(function (c) { c.setAttribute("aria-pressed", "true"); });
    rule.value = where.value = "";
    filter();
    f.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
}

// A picture that is wider than its place opens where the finding is.
all(".pic").forEach(function (p) {
  var m = p.scrollWidth > p.clientWidth && p.querySelector(".mark.wit");
  if (m) p.scrollLeft = Math.max(0, m.transform.baseVal.getItem(0).matrix.e - 112 - p.clientWidth / 2);
});
})();
