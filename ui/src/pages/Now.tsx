export function Now() {
  return <h1>Now</h1>
}
