export function Queues() {
  return <h1>Queues</h1>
}
