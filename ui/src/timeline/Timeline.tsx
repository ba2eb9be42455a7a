/** Stands here until the timeline is built in; the page around it already gives it what it shows. */
export interface TimelineProps {
  live: object
  revision?: number
  past?: readonly object[]
  pastSince?: number | null
  now?: number
  view?: object
  onViewChange?: (view: object) => void
  onOpen?: (job: { namespace: string; name: string; workload: string; kind: string }) => void
  stale?: boolean
  label?: string
}

export function Timeline({ label }: TimelineProps) {
  return (
    <section className="panel" aria-label={label}>
      <div className="empty">
        This build of the dashboard has no timeline. The command <code>gangline plan</code> shows who runs when.
      </div>
    </section>
  )
}
