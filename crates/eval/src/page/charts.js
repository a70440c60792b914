// Charts: the values at the step next to the pointer, or chosen by the arrow keys.
{
  const tip = document.getElementById("tip");
  const left = 46, right = 428; // as charts.rs draws

  for (const svg of document.querySelectorAll("svg[data-curves]")) {
    const [unit, times, curves] = JSON.parse(svg.dataset.curves);
    const cursor = svg.querySelector(".cursor");
    let chosen = -1;

    const show = (index, clientX, clientY) => {
      chosen = Math.max(0, Math.min(times.length - 1, index));
      const x = left + ((right - left) * (chosen + 1)) / times.length;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.removeAttribute("hidden");
      const line = (tag, ...parts) => {
        const element = document.createElement(tag);
        for (const part of parts) {
          const piece = document.createElement(tag === "b" ? "span" : "i");
          piece.textContent = part;
          element.append(piece);
        }
        return element;
      };
      const rows = curves.filter(([, , values]) => values[chosen] !== null);
      rows.sort((a, b) => a[2][chosen] - b[2][chosen]);
      tip.replaceChildren(
        line("b", `${times[chosen]} s ahead: ${unit}`),
        ...rows.map(([, label, values]) => line("span", label, digits(values[chosen]))),
      );
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(innerWidth - box.width - 4, clientX + 14))}px`;
      tip.style.top = `${Math.max(4, Math.min(innerHeight - box.height - 4, clientY + 14))}px`;
    };
    const hide = () => {
      tip.hidden = true;
      cursor.setAttribute("hidden", "");
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * 440;
      const index = Math.round(((x - left) / (right - left)) * times.length) - 1;
      show(index, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!by) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      const index = Math.max(0, Math.min(times.length - 1, chosen + by));
      const x = left + ((right - left) * (index + 1)) / times.length;
      show(index, box.left + (x / 440) * box.width, box.top + 20);
    });
  }
}

// Three digits, as the tables show them.
function digits(value) {
  if (value === null || value === undefined) return "-";
  return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}
