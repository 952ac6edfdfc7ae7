// A function that uses nearly all CPU time, for two minutes at most.
function hotInScript(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}
function caller() {
  return hotInScript(1e6) + 1;
}
const end = Date.now() + 120000;
let total = 0;
while (Date.now() < end) total += caller();
console.log(total);
