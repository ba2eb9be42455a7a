/** Stands here until the timeline is built in. */
export function Timeline() {
  return (
    <>
      <h1>Timeline</h1>
      <p>This build of the dashboard has no timeline. The command <code>gangline plan</code> shows who runs when.</p>
    </>
  )
}
