export function Use() {
  return <h1>Use</h1>
}
