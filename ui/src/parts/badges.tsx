/** States as colour, shape and word. */
import { HEALTH_WORDS, STATE_WORDS, healthOf, shownState, type Health, type ShownState, type WindowState } from '../words'
import type { Job, Node } from '../api/types'
import { Icon, type IconName } from './icons'

export type Tone = 'good' | 'busy' | 'wait' | 'warn' | 'bad' | 'idle'

const STATE_LOOKS: Record<ShownState, [Tone, IconName]> = {
  Running: ['good', 'play'],
  Starting: ['busy', 'half'],
  Reserved: ['busy', 'dotRing'],
  Stopping: ['warn', 'stop'],
  Pending: ['wait', 'ring'],
  'Never fits': ['bad', 'never'],
  Inactive: ['idle', 'pause'],
  'Not queued': ['bad', 'warn'],
  'Not managed': ['idle', 'dash'],
  Failed: ['bad', 'cross'],
  Succeeded: ['idle', 'check'],
}

const HEALTH_LOOKS: Record<Health, [Tone, IconName]> = {
  ready: ['good', 'check'],
  leaving: ['idle', 'pause'],
  soaking: ['wait', 'hourglass'],
  faulty: ['bad', 'cross'],
}

export function Badge({ tone, icon, word, title }: { tone: Tone; icon: IconName; word: string; title?: string }) {
  return (
    <span className={`badge tone-${tone}`} title={title}>
      <Icon name={icon} />
      <span>{word}</span>
    </span>
  )
}

export function StateBadge({ state }: { state: ShownState }) {
  // a newer server may have states that this page does not know
  const [tone, icon] = (STATE_LOOKS as Partial<typeof STATE_LOOKS>)[state] ?? (['idle', 'dash'] as const)
  const words = (STATE_WORDS as Partial<typeof STATE_WORDS>)[state]
  return <Badge tone={tone} icon={icon} word={words?.word ?? state} {...(words ? { title: words.means } : {})} />
}

export function JobState({ job }: { job: Job }) {
  return <StateBadge state={shownState(job)} />
}

export function NodeHealth({ node }: { node: Node }) {
  const health = healthOf(node)
  const [tone, icon] = HEALTH_LOOKS[health]
  return <Badge tone={tone} icon={icon} word={node.trouble || HEALTH_WORDS[health].word} title={HEALTH_WORDS[health].means} />
}

export function HealthIcon({ health }: { health: Health }) {
  const [tone, icon] = HEALTH_LOOKS[health]
  return (
    <span className={`badge tone-${tone}`}>
      <Icon name={icon} />
    </span>
  )
}

const WINDOW_LOOKS: Record<WindowState, [Tone, IconName]> = {
  open: ['warn', 'dotRing'],
  emptying: ['wait', 'eject'],
  ahead: ['idle', 'hourglass'],
}

/** How far the next window of a Reservation on a node is. */
export function WindowIcon({ window }: { window: WindowState }) {
  const [tone, icon] = WINDOW_LOOKS[window]
  return <ToneIcon tone={tone} icon={icon} />
}

export function ToneIcon({ tone, icon }: { tone: Tone; icon: IconName }) {
  return (
    <span className={`badge tone-${tone}`}>
      <Icon name={icon} />
    </span>
  )
}
