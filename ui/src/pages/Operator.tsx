export function Operator() {
  return <h1>Operator</h1>
}
