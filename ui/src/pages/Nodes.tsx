/** Nodes with a box for each GPU: who sits where, what is free, what is ill, and how large a gang fits. */
import { memo, useCallback, useDeferredValue, useMemo, type CSSProperties } from 'react'
import { useAnswer } from '../api/answers'
import { useIsLoading, useTable } from '../api/live'
import type { Listed, Move, Node, Occupant, Swap, Verb } from '../api/types'
import { useNow } from '../clock'
import { flavorOf, freeNodes, largestGangs } from '../figures'
import { ActionButton, Actions, MissingRights, useRights } from '../parts/actions'
import { AsOfField, AsOfPanels, useAsOf } from '../parts/asof'
import { Badge, HealthIcon, NodeHealth, ToneIcon, WindowIcon } from '../parts/badges'
import { CloseButton } from '../parts/dialogs'
import { Commands, quoted } from '../parts/commands'
import { NamedJob } from '../parts/jobs'
import { Answered, Empty, Panel, Scroll } from '../parts/panel'
import { Swaps, SwapsOf } from '../parts/swaps'
import { useNamespace, useView } from '../view'
import { accelerators, count, duration, gpus, HEALTH_WORDS, healthOf, healthReason, number, windowOf, windowWords, type Health, type WindowState } from '../words'

const HEALTHS: readonly Health[] = ['ready', 'leaving', 'soaking', 'faulty']
const WINDOWS: readonly WindowState[] = ['open', 'emptying', 'ahead']
const WINDOW_WORDS: Record<WindowState, string> = { open: 'in a window', emptying: 'being emptied for one', ahead: 'a window is ahead' }
const VERBS: readonly Verb[] = ['cordon', 'uncordon']
const MANY = 200
/** No node has more GPUs; a resource that counts something else does. */
const MOST_SEATS = 64

const names = new Intl.Collator('en', { numeric: true })
/** node-2 comes before node-10 */
const byName = (one: Node, other: Node) => names.compare(one.metadata.name, other.metadata.name)

export function Nodes() {
  const view = useView()
  const table = useTable('nodes')
  const loading = useIsLoading()
  const asOf = useAsOf()
  const list = useDeferredValue(useMemo(() => [...table.list].sort(byName), [table]))
  const [health, flavor, text, job, chosenName] = [view.get('health'), view.get('flavor'), view.get('q').toLowerCase(), view.get('job'), view.get('node')]
  const shown = useMemo(
    () =>
      list.filter(
        (node) =>
          (!health || healthOf(node) === health) &&
          (!flavor || node.flavors.includes(flavor)) &&
          (!text || node.metadata.name.toLowerCase().includes(text) || node.occupants.some((each) => each.job.toLowerCase().includes(text))),
      ),
    [list, health, flavor, text],
  )
  const groups = useMemo(() => byFlavor(shown), [shown])
  const flavors = useMemo(() => [...new Set(list.flatMap((node) => node.flavors))].sort(), [list])
  const now = useNow(30)
  const windows = WINDOWS.filter((each) => list.some((node) => windowOf(node, now) === each))
  const chosen = table.list.find((node) => node.metadata.name === chosenName)
  const select = useCallback((name: string) => view.set({ node: name === chosenName ? '' : name }), [view, chosenName])
  if (loading) return <h1>Nodes</h1>
  if (table.list.length === 0) {
    return (
      <>
        <h1>Nodes</h1>
        <Empty>
          <p>No node belongs to a flavor that you may see. A ResourceFlavor selects nodes by their labels.</p>
        </Empty>
      </>
    )
  }
  return (
    <Actions>
      <div className="page-head">
        <h1>Nodes</h1>
        <span className="quiet">
          {number(shown.length)} of {count(list.length, 'node')}
        </span>
        <AsOfField asOf={asOf} />
        {job && (
          <button type="button" className="chip" aria-pressed="true" onClick={() => view.set({ job: '' })}>
            only {job} is coloured <span className="quiet">show all</span>
          </button>
        )}
      </div>
      <div className="toolbar">
        <input type="search" className="input" placeholder="Node or job (press /)" aria-label="Search nodes by their name or their jobs" value={view.get('q')} onChange={(event) => view.set({ q: event.target.value })} />
        {flavors.length > 1 && (
          <label className="field">
            <span>Flavor</span>
            <select className="select" value={flavor} onChange={(event) => view.set({ flavor: event.target.value })}>
              <option value="">all</option>
              {flavors.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <div className="chips" role="group" aria-label="Health">
          {HEALTHS.map((each) => {
            const many = list.filter((node) => healthOf(node) === each).length
            return many || health === each ? (
              <button key={each} type="button" className="chip" aria-pressed={health === each} onClick={() => view.set({ health: health === each ? '' : each })} title={HEALTH_WORDS[each].means}>
                <HealthIcon health={each} /> {HEALTH_WORDS[each].word} <span className="quiet">{number(many)}</span>
              </button>
            ) : null
          })}
        </div>
        <ul className="legend cards-legend" aria-label="What the boxes mean">
          <li><i className="swatch by-job" style={hue('job/example')} /> a job, by colour</li>
          <li><i className="swatch box-free" /> free</li>
          <li><i className="swatch box-awaited" style={hue('job/example')} /> on its way</li>
          <li><i className="swatch fill-outside" /> outside of queues</li>
          <li><ToneIcon tone="bad" icon="cross" /> failed card</li>
          {windows.map((each) => (
            <li key={each}><WindowIcon window={each} /> {WINDOW_WORDS[each]}</li>
          ))}
        </ul>
      </div>
      <div className={chosen ? 'split' : ''}>
        <div className="stack">
          <AsOfPanels asOf={asOf} />
          <Gangs groups={groups} />
          {groups.map(([name, nodes]) => (
            <Panel key={name} title={name} aside={<span className="quiet small">{groupWords(nodes)}</span>}>
              <div className={nodes.length > MANY ? 'node-grid many' : 'node-grid'}>
                {nodes.map((node) => (
                  <NodeBox key={node.metadata.name} node={node} chosen={node.metadata.name === chosenName} job={job} onSelect={select} />
                ))}
              </div>
            </Panel>
          ))}
          {!chosen && <SwapsOfNodes />}
          {shown.length === 0 && <Empty>No node matches these filters.</Empty>}
        </div>
        {chosen && <NodeDetail node={chosen} onClose={() => view.set({ node: '' })} />}
      </div>
    </Actions>
  )
}

function byFlavor(nodes: readonly Node[]): [string, Node[]][] {
  const found = new Map<string, Node[]>()
  for (const node of nodes) {
    const group = found.get(flavorOf(node))
    if (group) group.push(node)
    else found.set(flavorOf(node), [node])
  }
  return [...found].sort((a, b) => a[0].localeCompare(b[0]))
}

function groupWords(nodes: readonly Node[]): string {
  const total = nodes.reduce((sum, node) => sum + accelerators(node.capacity), 0)
  const used = nodes.reduce((sum, node) => sum + accelerators(node.used), 0)
  return `${count(nodes.length, 'node')}, ${number(used)} of ${gpus(total)} used`
}

/** Gangs that lost nodes: all, or those of one node. */
function SwapsOfNodes({ node = '' }: { node?: string }) {
  const namespace = useNamespace()
  const answer = useAnswer<Listed<Swap>>(`api/swaps?namespace=${encodeURIComponent(namespace)}`, 60)
  return (
    <Answered title="Swaps" aside={<span className="quiet small">{node ? 'of gangs that left this node or came to it' : 'gangs that lost nodes, and how long each stage took'}</span>} answer={answer}>
      {(data) => (node ? <SwapsOf node={node} swaps={data.items.filter((swap) => swap.from.includes(node) || swap.to.includes(node))} /> : <Swaps swaps={data.items} />)}
    </Answered>
  )
}

// --- fragmentation ---

function Gangs({ groups }: { groups: [string, Node[]][] }) {
  const rows = groups.map(([flavor, nodes]) => ({ flavor, fits: largestGangs(nodes), spare: freeNodes(nodes) })).filter((row) => row.fits.length > 0)
  const sizes = [...new Set(rows.flatMap((row) => row.fits.map((fit) => fit.perPod)))].sort((a, b) => a - b)
  if (!rows.length) return null
  return (
    <Panel title="Largest gang that fits now" aside={<span className="quiet small">by GPUs per pod, on nodes that take work; quota is not looked at</span>}>
      <Scroll label="Largest gangs that fit">
        <table className="plain gangs">
          <thead>
            <tr>
              <th scope="col">Flavor</th>
              {sizes.map((size) => (
                <th key={size} scope="col" className="number">
                  {size} per pod
                </th>
              ))}
              <th scope="col" className="number" title="Nodes that take work and run nothing: a gang that loses a node moves to one of them. A QueuePolicy holds some back by its field spec.recovery.spares.">Spare nodes</th>
              <th scope="col">Fragmentation</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ flavor, fits, spare }) => {
              const free = fits[0]?.gpus ?? 0
              const whole = fits[fits.length - 1]
              return (
                <tr key={flavor}>
                  <th scope="row">{flavor}</th>
                  {sizes.map((size) => {
                    const fit = fits.find((each) => each.perPod === size)
                    return (
                      <td key={size} className="number">
                        {fit ? (
                          <>
                            <span className="strong">{number(fit.gpus)}</span> {fit.pods > 0 && <span className="quiet">{count(fit.pods, 'pod')}</span>}
                          </>
                        ) : (
                          <span className="quiet">–</span>
                        )}
                      </td>
                    )
                  })}
                  <td className="number">{number(spare)}</td>
                  <td className="gang-words">
                    {free === 0 ? 'Nothing is free.' : whole && whole.gpus < free ? `${number(free - whole.gpus)} of ${gpus(free)} free ${free - whole.gpus === 1 ? 'is' : 'are'} on nodes that are partly used.` : 'All free GPUs are on whole nodes.'}
                  </td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  )
}

// --- one node ---

/** The colour of a job: the same on every page and for every reader. */
export function hue(job: string): CSSProperties {
  let hash = 2166136261
  for (let i = 0; i < job.length; i++) hash = Math.imul(hash ^ job.charCodeAt(i), 16777619)
  const step = (hash >>> 0) % 24
  return { '--job': `hsl(${step * 15} var(--job-rich) calc(var(--job-light) + ${((hash >>> 8) % 3) * 6 - 6}%))` } as CSSProperties
}

interface Seat {
  kind: 'used' | 'outside' | 'awaited' | 'free' | 'broken'
  job: string
}

/** One seat per GPU. Without an inventory of cards it is not known on which cards a job sits: they are counted from the first. */
export function seatsOf(node: Node): Seat[] {
  if (node.cards?.length) {
    return node.cards.slice(0, MOST_SEATS).map((card): Seat => {
      const sitter = card.occupants[0]
      if (!card.healthy) return { kind: 'broken', job: sitter?.job ?? '' }
      return sitter ? { kind: sitter.outside ? 'outside' : 'used', job: sitter.job } : { kind: 'free', job: '' }
    })
  }
  const total = Math.min(MOST_SEATS, accelerators(node.capacity))
  const seats: Seat[] = []
  const add = (each: Occupant, kind: Seat['kind']) => {
    const wanted = Math.min(Math.ceil(accelerators(each.amounts)), total - seats.length)
    for (let i = 0; i < wanted; i++) seats.push({ kind, job: each.job })
  }
  for (const each of node.occupants) add(each, each.outside ? 'outside' : 'used')
  for (const each of node.awaited) add(each, 'awaited')
  while (seats.length < total) seats.push({ kind: 'free', job: '' })
  return seats
}

interface BoxProps {
  node: Node
  chosen: boolean
  job: string
  onSelect: (name: string) => void
}

const NodeBox = memo(function NodeBox({ node, chosen, job, onSelect }: BoxProps) {
  const name = node.metadata.name
  const health = healthOf(node)
  const seats = seatsOf(node)
  const total = accelerators(node.capacity)
  const now = useNow(30)
  const window = windowOf(node, now)
  const kept = windowWords(node, now)
  const label = `${name}: ${number(accelerators(node.used))} of ${gpus(total)} used${health === 'ready' ? '' : `, ${node.trouble}`}${kept && `. ${kept}`}`
  return (
    <button
      type="button" className="node" data-health={health} data-window={window ?? undefined} data-dim={job !== ''} aria-pressed={chosen} onClick={() => onSelect(name)} aria-label={label} title={health === 'ready' ? label : `${label}. ${healthReason(node)}`}
    >
      <span className="node-name">
        <span className="clip">{name}</span>
        {window && <WindowIcon window={window} />}
        {health !== 'ready' && <HealthIcon health={health} />}
      </span>
      <span className="cards">
        {seats.map((seat, index) => (
          <i key={index} className={`${seat.kind}${seat.job === job && job ? ' mine' : ''}`} style={seat.kind === 'used' || seat.kind === 'awaited' ? hue(seat.job) : undefined} title={seat.job || seat.kind} />
        ))}
      </span>
    </button>
  )
})

function NodeDetail({ node, onClose }: { node: Node; onClose: () => void }) {
  const namespace = useNamespace()
  const view = useView()
  const now = useNow(10)
  const rights = useRights(namespace)
  const name = node.metadata.name
  const verb: Verb = healthOf(node) === 'leaving' ? 'uncordon' : 'cordon'
  const moves = useAnswer<{ gangs: Move[] }>(view.get('moves') ? `api/moves/${encodeURIComponent(name)}?namespace=${encodeURIComponent(namespace)}` : null)
  return (
    <div className="side stack">
      <Panel title={`Node ${name}`} aside={<CloseButton name="Close the node" onClose={onClose} />}>
        <div className="stack">
          <NodeHealth node={node} />
          <p>
            {healthReason(node)}
            {node.until !== null && node.until > now && ` It is used again in ${duration(node.until - now)}.`}
          </p>
          {windowWords(node, now) && <p className="notice">{windowWords(node, now)}</p>}
          <dl className="facts">
            <dt>Flavors</dt>
            <dd>{node.flavors.join(', ')}</dd>
            {Object.entries(node.capacity).map(([resource, amount]) => (
              <Amount key={resource} name={resource} text={`${node.used[resource] ?? '0'} of ${amount} used`} />
            ))}
          </dl>
          <div className="toolbar">
            <ActionButton verb={verb} rights={rights} targets={[{ node: name }]} />
            <button type="button" className="button" aria-pressed={view.get('moves') !== ''} onClick={() => view.set({ moves: view.get('moves') ? '' : '1' })}>
              Which gangs would leave?
            </button>
          </div>
          <MissingRights verbs={VERBS} rights={rights} />
        </div>
      </Panel>
      {view.get('moves') && <Answered title="Were the node vacated now" answer={moves}>{(data) => <Moves moves={data.gangs} />}</Answered>}
      <Panel title="Who sits there">
        {node.occupants.length + node.awaited.length === 0 ? (
          <p className="quiet">Nobody does.</p>
        ) : (
          <ul className="rows">
            {[...node.occupants.map((each) => [each, ''] as const), ...node.awaited.map((each) => [each, 'on its way'] as const)].map(([each, note]) => (
              <li key={`${each.namespace}/${each.job}${note}`}>
                <span className="clip">
                  <i className={`swatch ${each.outside ? 'fill-outside' : 'by-job'}`} style={each.outside ? undefined : hue(each.job)} /> {each.outside ? each.job : <NamedJob {...each} />}{' '}
                  <span className="quiet">{[each.namespace, each.outside ? 'outside of queues' : '', note].filter(Boolean).join(', ')}</span>
                </span>
                <span className="nowrap">
                  {gpus(accelerators(each.amounts))}{' '}
                  {!each.outside && (
                    <button type="button" className="button plain small" onClick={() => view.set({ job: view.get('job') === each.job ? '' : each.job })} aria-pressed={view.get('job') === each.job}>
                      where else?
                    </button>
                  )}
                </span>
              </li>
            ))}
          </ul>
        )}
      </Panel>
      {node.cards && node.cards.length > 0 && <Cards node={node} />}
      <SwapsOfNodes node={name} />
      <Panel title="Commands">
        <Commands texts={[`gangline nodes --cards`, `gangline admin cordon ${quoted(`node/${name}`)}`, `kubectl describe node ${quoted(name)}`]} />
      </Panel>
    </div>
  )
}

function Amount({ name, text }: { name: string; text: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </>
  )
}

function Moves({ moves }: { moves: Move[] }) {
  if (!moves.length) return <p className="quiet">No gang of a queue sits there.</p>
  return (
    <ul className="rows">
      {moves.map((each) => (
        <li key={`${each.namespace}/${each.job}`}>
          <span>
            <NamedJob {...each} />
            <div className="quiet small">{each.moves ? `It goes${each.to.length ? ` to ${each.to.join(', ')}` : ''} (${each.how.toLowerCase()}).` : each.obstacle ? `It stays: ${each.obstacle}.` : 'It stays.'}</div>
          </span>
          {each.moves ? <Badge tone="good" icon="right" word="leaves" /> : <Badge tone="warn" icon="stop" word="stays" />}
        </li>
      ))}
    </ul>
  )
}

function Cards({ node }: { node: Node }) {
  const cards = node.cards ?? []
  const models = [...new Set(cards.map((card) => card.model))]
  return (
    <Panel title="Cards" aside={<span className="quiet small">{models.join(', ')}</span>}>
      <Scroll label={`Cards of ${node.metadata.name}`}>
        <table className="plain">
          <thead>
            <tr>
              <th scope="col" className="number">No.</th>
              <th scope="col">Health</th>
              <th scope="col" className="number">Free</th>
              <th scope="col">Who</th>
            </tr>
          </thead>
          <tbody>
            {cards.map((card, index) => (
              <tr key={card.uuid || index} title={`${card.uuid} ${card.model}`}>
                <td className="number">{card.index ?? '?'}</td>
                <td>{card.healthy ? <Badge tone="good" icon="check" word="well" /> : <Badge tone="bad" icon="cross" word="failed" />}</td>
                <td className="number nowrap">{card.milli ? `${Math.round((100 * card.freeMilli) / card.milli)} %` : ''}</td>
                <td className="nowrap">{card.occupants.map((each) => each.job).join(', ')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  )
}
