/** Horizontal bars whose parts have names: always with the same numbers as text beside them. */
import { number } from '../words'

export interface BarPart {
  name: string
  amount: number
  fill: string
}

export function Bar({ parts, total, tall = false, mark, label }: { parts: BarPart[]; total: number; tall?: boolean; mark?: number; label: string }) {
  const whole = Math.max(1e-9, total)
  return (
    <div className={tall ? 'bar tall-bar' : 'bar'} role="img" aria-label={`${label}: ${parts.filter((part) => part.amount > 0).map((part) => `${part.name} ${number(part.amount)}`).join(', ') || 'nothing'}, of ${number(total)}`}>
      {parts.map((part) =>
        part.amount > 0 ? (
          <i key={part.name} className={`fill-${part.fill}`} style={{ width: `${(100 * part.amount) / whole}%` }} title={`${part.name}: ${number(part.amount)}`} />
        ) : null,
      )}
      {mark !== undefined && mark < whole && <b className="mark" style={{ left: `${(100 * mark) / whole}%` }} />}
    </div>
  )
}

export function Legend({ parts }: { parts: { name: string; fill: string; amount?: number }[] }) {
  return (
    <ul className="legend">
      {parts.map((part) => (
        <li key={part.name}>
          <span className={`swatch fill-${part.fill}`} />
          {part.name}
          {part.amount !== undefined && <b>{number(part.amount)}</b>}
        </li>
      ))}
    </ul>
  )
}
