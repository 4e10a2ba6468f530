// The API takes the cookie of a session only with this header, which no form and no page of another origin can send.
const headers = { "X-Sluice": "1" };
const out = document.getElementById("out");

for (const link of document.querySelectorAll("a[data-api]")) {
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    const answer = await fetch(link.getAttribute("href"), { headers });
    const text = await answer.text();
    try {
      out.textContent = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      out.textContent = text;
    }
  });
}

const leave = document.getElementById("logout");
leave.hidden = false;
leave.addEventListener("click", async () => {
  const answer = await fetch("/api/v1/session/logout", { method: "POST", headers });
  if (answer.ok) {
    location.replace("/login");
  } else {
    out.textContent = await answer.text();
  }
});
