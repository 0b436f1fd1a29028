// Offers the browser's own time zone, which the server cannot know.
"use strict";
(() => {
  const here = document.getElementById("here");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!here || !zone) return;
  here.value = zone;
  here.textContent = `This browser's: ${zone}`;
  here.hidden = false;
})();
