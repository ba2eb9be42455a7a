export function Trust() {
  return <h1>Trust</h1>
}
