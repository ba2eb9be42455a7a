// A stand-in for `gangline ui` while the front end is developed: the contract's API over a made-up cluster.
//
//   node dev/server.mjs [--port 5180] [--jobs 240] [--nodes 48] [--prefix /] [--batch]
//
// It serves ui/dist as the real server does, with its Content-Security-Policy. `npm run dev` proxies its API.
// While it runs, GET api/dev?… changes what it does: jobs=5000&nodes=500 makes another cluster, empty=1 an empty one,
// trouble=NoLeader (Forbidden, Expired, Unreachable, none) breaks the stream, stale=1 stops its clock, out=1 signs out,
// every=100 sends a change each 100 ms, old=1 makes it an operator without attempts and decisions, record=0 one without a record.
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { extname, join, normalize } from 'node:path'
import { parseArgs } from 'node:util'
import { makeCluster } from './cluster.mjs'
import { decisionInputs, makeRecord, usageSums } from './record.mjs'

const { values: args } = parseArgs({
  options: { port: { type: 'string', default: '5180' }, jobs: { type: 'string', default: '240' }, nodes: { type: 'string', default: '48' }, prefix: { type: 'string', default: '/' }, batch: { type: 'boolean', default: false } },
})
const DIST = new URL('../dist/', import.meta.url).pathname
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json', '.map': 'application/json' }

let cluster = makeCluster({ jobs: Number(args.jobs), nodes: Number(args.nodes) })
let record = makeRecord(cluster)
const mode = { old: false, record: true, trouble: 'none', stale: false, out: false, all: !args.batch, every: 2000 }
const streams = new Set()
const now = () => Date.now() / 1000
let lookedAt = now()

const visible = (namespace) => {
  const rows = { jobs: cluster.jobs, queues: cluster.queues, nodes: cluster.nodes, runs: cluster.runs }
  if (!namespace) return rows
  const jobs = Object.fromEntries(Object.entries(cluster.jobs).filter(([, job]) => job.namespace === namespace))
  return { ...rows, jobs }
}
const send = (response, event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)

function tick() {
  setTimeout(tick, mode.every)
  if (mode.stale) return
  lookedAt = now()
  if (mode.trouble !== 'none') return
  const changed = streams.size ? cluster.tick() : null
  for (const stream of streams) {
    if (!changed) { send(stream.response, 'beat', { at: lookedAt }); continue }
    const jobs = stream.namespace ? Object.fromEntries(Object.entries(changed.put.jobs).filter(([, job]) => job.namespace === stream.namespace)) : changed.put.jobs
    send(stream.response, 'change', { revision: cluster.revision, at: lookedAt, put: { ...changed.put, jobs }, gone: changed.gone })
  }
}
tick()

const json = (response, status, body, headers = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers })
  response.end(body === undefined ? '' : JSON.stringify(body))
}
const body = async (request) => {
  let text = ''
  for await (const part of request) text += part
  return text ? JSON.parse(text) : {}
}
const label = (job) => `${job.jobKind.toLowerCase()}/${job.jobName}`
const findJob = (namespace, kind, name) => Object.values(cluster.jobs).find((job) => job.namespace === namespace && job.jobKind.toLowerCase() === kind.toLowerCase() && job.jobName === name)

function jobAnswer(job) {
  const lines = [
    { label: 'state', text: `${job.state} for 12m, ${(job.position ?? 0) + 1}th of 41 waiting in ClusterQueue ${job.clusterQueue} (cohort company)` },
    { label: 'asks for', text: `${job.gpus * 12} cpu, ${job.gpus} nvidia.com/gpu in ${job.pods} pods, all at once; priority ${job.priority}` },
    { label: 'because', text: job.why || 'it has finished' },
  ]
  if (job.state === 'Pending') lines.push(
    { label: 'quota', text: `a100-80g: ${job.clusterQueue} uses 62 of its 64 GPUs (6 borrowed); cohort company uses 150 of 168` },
    { label: 'ahead', text: 'gpujob/pretrain-7b-01a (64 GPUs, priority 1000), job/eval-suite-02c (8 GPUs, priority 0) and 3 more' },
    { label: 'held by', text: 'a100-80g: gpujob/diffusion-xl-00k (32, running 2h40m, ends in 20m – 1h10m), job/ranker-011 of vision (16, running 47m)' },
    { label: 'needs', text: '2 more GPUs of a100-80g free: the end of job/ranker-011 (16) frees as much' },
  )
  for (const text of job.warnings) lines.push({ label: 'warning', text })
  const promises = []
  let p50 = (job.expectedStart?.p50 ?? job.since) - 2600
  const causes = ['', 'gpujob/diffusion-xl-00k runs longer than forecast', 'job/eval-suite-02c was submitted with a higher priority', 'node h200-003 failed', 'job/tokenize-014 ended earlier than forecast']
  for (let i = 0; i < 5; i++) {
    promises.push({ at: job.created + i * ((job.state === 'Pending' ? now() : job.since) - job.created) / 5, p50, p90: p50 + 5200 - i * 900, because: 'after gpujob/diffusion-xl-00k ends', cause: causes[i] })
    p50 += [900, 1400, 700, -400, 0][i]
  }
  return {
    job, why: { lines },
    promises: { promises, started: job.state === 'Pending' ? null : job.since, record: { starts: 412, withinP50: 0.57, withinP90: 0.91, medianError: 0.37 } },
    story: { events: [
      { at: job.created, state: 'Pending', cause: '', decision: null },
      { at: job.created + 400, state: 'QuotaReserved', cause: `Quota reserved in ClusterQueue ${job.clusterQueue}`, decision: 14 },
      { at: job.created + 410, state: 'Admitted', cause: `Quota reserved in ClusterQueue ${job.clusterQueue}`, decision: 14 },
      { at: job.created + 3000, state: 'Evicting', cause: 'Preempted for gpujob/pretrain-7b-01a (InCohortReclamation)', decision: 201 },
      { at: job.created + 3004, state: 'Inadmissible', cause: job.message, decision: 202 },
    ] },
  }
}

function attemptsOf(job) {
  const mine = record.attempts.filter((each) => each.workload === job.name)
  const before = record.attempts.filter((each) => each.ended && each.gpus === job.gpus && ['Preempted', 'Failed', 'Evicted'].includes(each.end)).slice(0, job.jobName.length % 3 + 1)
  return [...mine, ...before.map((each, i) => ({ ...each, workload: job.name, jobName: job.jobName, jobKind: job.jobKind, namespace: job.namespace, attempt: mine.length + before.length - i - 1, hidden: false }))]
}

const RIGHTS = () => Object.fromEntries(['hold', 'release', 'cancel', 'move', 'top', 'cordon', 'uncordon'].map((verb) => [verb, mode.all || !verb.endsWith('cordon') ? { allowed: true } : { allowed: false, missing: 'patch nodes' }]))

async function api(request, response, path, query) {
  if (path === 'dev') {
    if (query.has('jobs') || query.has('nodes') || query.has('empty')) cluster = makeCluster({ jobs: Number(query.get('jobs') ?? args.jobs), nodes: Number(query.get('nodes') ?? args.nodes), empty: query.get('empty') === '1' })
    if (query.has('jobs') || query.has('nodes') || query.has('empty')) record = makeRecord(cluster)
    if (query.has('trouble')) mode.trouble = query.get('trouble')
    if (query.has('stale')) mode.stale = query.get('stale') === '1'
    if (query.has('out')) mode.out = query.get('out') === '1'
    if (query.has('every')) mode.every = Number(query.get('every'))
    if (query.has('old')) mode.old = query.get('old') === '1'
    if (query.has('record')) mode.record = query.get('record') !== '0'
    if (query.has('all')) mode.all = query.get('all') === '1'
    for (const stream of streams) {
      if (mode.trouble === 'Unreachable' || query.has('empty') || query.has('jobs')) stream.response.end()
      else if (mode.trouble !== 'none') send(stream.response, 'trouble', { error: TROUBLES[mode.trouble], kind: mode.trouble })
      else send(stream.response, 'snapshot', { revision: cluster.revision, at: lookedAt, rows: visible(stream.namespace) })
    }
    return json(response, 200, mode)
  }
  if (path === 'session') {
    if (request.method === 'POST') {
      const { token } = await body(request)
      if (!token || token.length < 4) return json(response, 403, { error: 'The API server does not accept this token.' })
      mode.out = false
      return json(response, 200, {})
    }
    if (request.method === 'DELETE') { mode.out = true; return json(response, 200, {}) }
    if (mode.out) return json(response, 401, { login: ['token', 'oidc'] })
    const namespaces = ['team-language', 'team-vision', 'team-speech', 'team-science']
    return json(response, 200, { user: mode.all ? 'admin@example' : 'ana', namespaces: mode.all ? namespaces : ['team-vision'], namespace: 'team-vision', all: mode.all, csrf: 'c5rf', cluster: 'gangline-local', version: '0.2.0', login: 'token' })
  }
  if (mode.out) return json(response, 401, { login: ['token', 'oidc'] })
  if (request.method !== 'GET' && request.headers['x-gangline-csrf'] !== 'c5rf') return json(response, 403, { error: 'The request lacks its CSRF header.' })
  if (path === 'live') {
    if (mode.trouble === 'Unreachable') return json(response, 503, { error: 'The API server does not answer.' })
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    const stream = { response, namespace: query.get('namespace') ?? '' }
    streams.add(stream)
    request.on('close', () => streams.delete(stream))
    if (mode.trouble === 'none') send(response, 'snapshot', { revision: cluster.revision, at: lookedAt, rows: visible(stream.namespace) })
    else send(response, 'trouble', { error: TROUBLES[mode.trouble], kind: mode.trouble })
    return
  }
  const parts = path.split('/').map(decodeURIComponent)
  if (parts[0] === 'job') {
    const job = findJob(parts[1], parts[2], parts[3])
    if (!job) return json(response, 404, { error: `There is no job ${parts[3]} in namespace ${parts[1]}.` })
    const on = Object.values(cluster.nodes).filter((node) => node.occupants.some((each) => each.job === label(job) && each.namespace === job.namespace))
    const pods = on.map((node, i) => ({ name: `${job.jobName}-worker-${i}`, podSet: 'worker', rank: i, node: node.metadata.name, state: 'Ready', created: job.since, obstacle: '' }))
    switch (parts[4]) {
      case undefined: return json(response, 200, jobAnswer(job))
      case 'remedies': return setTimeout(() => json(response, 200, { startsInSeconds: { p50: 2400, p90: 7200 }, because: 'after gpujob/diffusion-xl-00k ends', obstacle: '', remedies: [
        { kind: 'smaller', by: 'user', change: `${Math.max(1, job.gpus / 2)} GPUs instead of ${job.gpus}, and a run twice as long`, startsInSeconds: { p50: 60, p90: 300 }, gainedHours: 0.65 },
        { kind: 'queue', by: 'user', change: `LocalQueue ${job.queue}-batch`, startsInSeconds: { p50: 600, p90: 2400 }, gainedHours: 0.5 },
        { kind: 'nominalQuota', by: 'administrator', change: 'nominalQuota of a100-80g in ClusterQueue vision +2 nvidia.com/gpu', startsInSeconds: { p50: 0, p90: 20 }, gainedHours: 0.66 }], unexamined: 1 }), 1200)
      case 'victims': return json(response, 200, { starts: true, victims: [{ job: 'job/ranker-011', user: 'wei', gpus: 16, reason: 'InCohortReclamation', ranSeconds: 2820, unsavedSeconds: 1100, lostGpuHours: 4.889 }], obstacle: '' })
      case 'attempts': return mode.old ? json(response, 404, { error: 'There is no such answer.' }) : json(response, 200, { attempts: attemptsOf(job) })
      case 'pods': return json(response, 200, { pods })
      case 'events': return json(response, 200, { events: [{ type: 'Normal', reason: 'QuotaReserved', note: `Quota reserved in ClusterQueue ${job.clusterQueue}`, count: 1, at: job.created + 400, about: `workload/${job.name}` }, { type: 'Warning', reason: 'BackOff', note: 'Back-off restarting failed container main in pod', count: 4, at: job.since, about: `pod/${job.jobName}-worker-0` }] })
      case 'logs': return json(response, 200, { lines: Array.from({ length: 60 }, (_, i) => `step ${4000 + i * 10}  loss ${(2.31 - i * 0.004).toFixed(4)}  lr 3.0e-4  tokens/s ${(41200 + (i % 7) * 133).toString()}  <b>not bold</b>`) })
    }
  }
  const namespace = query.get('namespace') ?? ''
  const mine = (each) => !namespace || each.namespace === namespace || each.hidden
  const instant = (name, usual) => now() - Number(query.get(name) ?? usual)
  if (mode.old && ['attempts', 'usage', 'decisions', 'decision', 'check', 'annotations', 'doctor'].includes(parts[0])) return json(response, 404, { error: 'There is no such answer.' })
  switch (parts[0]) {
    case 'attempts': {
      const limit = Number(query.get('limit') ?? 5000)
      // what ran when the record was made may have ended since
      for (const each of record.attempts) if (each.ended === null && !cluster.runs[`${each.namespace}/${each.workload}`]) Object.assign(each, { ended: now(), end: 'Succeeded' })
      const found = record.attempts.filter((each) => (each.ended ?? now()) > instant('since', 86400) && mine(each))
      return json(response, 200, { items: found.slice(0, limit), more: found.length > limit })
    }
    case 'usage': return json(response, 200, { items: usageSums(record.attempts, { since: Number(query.get('since') ?? 86400), by: query.get('by') ?? 'clusterQueue', halfLife: Number(query.get('halfLife') ?? 0), namespace }) })
    case 'decisions': {
      if (!mode.record) return json(response, 200, { items: [], more: false, from: null, record: false })
      const limit = Number(query.get('limit') ?? 500)
      const [since, until] = [instant('since', 86400), instant('until', 0)]
      const found = record.decisions.filter((each) => each.at >= since && each.at <= until && each.at >= record.from && mine(each) && (!query.get('workload') || each.workload === query.get('workload')))
      return json(response, 200, { items: found.slice(0, limit), more: found.length > limit, from: record.from, record: true })
    }
    case 'decision': {
      const found = decisionInputs(cluster, record.decisions, Number(parts[1]))
      return setTimeout(() => found ? json(response, 200, found) : json(response, 404, { error: 'The record no longer has this decision.' }), 500)
    }
    case 'check': {
      const some = record.decisions[40]
      return json(response, 200, { items: [{ metadata: { name: 'last' }, at: now() - 312, from: now() - 86400, to: now() - 330, runs: 4, rounds: 1207, decisions: 149, differing: query.get('differ') ? 1 : 0, differences: query.get('differ') && some ? [{ at: some.at, recorded: [`Admit ${some.namespace}/${some.workload}`], repeated: [] }] : [], headsDelayed: 0, missed: 0, running: false, error: '' }] })
    }
    case 'annotations': {
      const keys = (query.get('keys') ?? '').split(',').filter(Boolean)
      const values = ['llm-pretraining', 'ocr', 'speech', 'protein', '']
      return json(response, 200, { items: Object.values(cluster.jobs).filter((job) => !job.hidden && mine(job)).map((job) => ({ uid: job.uid, annotations: Object.fromEntries(keys.flatMap((key, i) => { const value = values[(job.jobName.length * 7 + job.gpus + i) % values.length]; return value ? [[key, value]] : [] })) })) })
    }
    case 'doctor': return setTimeout(() => json(response, 200, { items: [
      { level: 'ok', name: 'API server', text: 'answers in 12 ms, version 1.33.1', advice: '', objects: [] },
      { level: 'ok', name: 'Resource definitions', text: 'all of Kueue and Gangline are there', advice: '', objects: [] },
      { level: 'warning', name: 'Queues without users', text: '2 LocalQueues have not been used for 30 days', advice: 'Delete them, or tell their teams that they exist.', objects: ['team-science/science-batch', 'team-speech/speech-batch'] },
      { level: 'error', name: 'Webhook certificates', text: 'the certificate of gangline-webhooks expires in 3 days', advice: 'Restart one replica of the operator: it renews the certificate at its start.', objects: ['gangline-system/gangline-webhook-tls'] },
      { level: 'skipped', name: 'Logs of the operator', text: 'you lack the right to get pods/log in gangline-system', advice: '', objects: [] },
    ] }), 2500)
    case 'whatif': {
      const { change } = await body(request)
      if (!change) return json(response, 400, { error: 'spec.change: must be an object' })
      const some = Object.values(cluster.jobs).filter((job) => job.state === 'Pending' && !job.hidden).slice(0, 9)
      const moved = (list, seconds) => list.map((job, i) => ({ job: label(job), seconds: seconds - i * 180 }))
      if (change.drain && !cluster.nodes[change.drain]) return json(response, 400, { error: `spec.change.drain: there is no node '${change.drain}' of a flavor` })
      if (change.drain) return setTimeout(() => json(response, 200, { before: null, after: null, gains: [], loses: moved(some.slice(0, 4), 2400), headDelaySeconds: 900, gpuHours: null, command: `gangline admin swap now ${change.drain}`, note: '' }), 900)
      if (change.clusterQueue) return setTimeout(() => json(response, 200, { before: null, after: null, gains: moved(some.slice(0, 3), 3600), loses: moved(some.slice(4, 9), 1500), headDelaySeconds: 0, gpuHours: null, command: `gangline limits set ${change.clusterQueue} --flavor ${change.flavor} --nominal ${change.gpus}`, note: '' }), 900)
      return setTimeout(() => json(response, 200, { before: { p50: 5400, p90: 9000 }, after: { p50: 2400, p90: 4200 }, gains: [], loses: moved(some.slice(0, 2), 700), headDelaySeconds: 0, gpuHours: -12, command: `gangline modify ${change.name}`, note: '' }), 900)
    }
    case 'rights': return json(response, 200, RIGHTS())
    case 'capacity': {
      const at = Number(query.get('at') ?? now())
      const row = (level, name, more) => ({ metadata: { name }, level, name, plan: '', overrides: [], knownUntil: null, quotas: [], from: null, to: null, firm: '', owners: [], nodes: 0, usableNodes: 0, nodeNames: [], amounts: [], ...more })
      const queues = Object.values(cluster.queues).filter((queue) => queue.level === 'ClusterQueue')
      const nodes = Object.keys(cluster.nodes)
      return json(response, 200, { items: [
        ...queues.map((queue, i) => row('ClusterQueue', queue.name, { ...(i ? {} : { plan: 'training-by-night', overrides: ['office-hours'] }), quotas: queue.quotas.map((quota) => ({ ...quota, nominalNow: quota.nominal, nominal: i ? quota.nominal : '16' })) })),
        row('Reservation', 'rack-upkeep', { from: at - 3600, to: at + 7200, firm: 'Hard', nodes: 12, nodeNames: nodes.slice(0, 12) }),
        row('Reservation', 'demo', { from: at - 600, to: at + 9000, firm: 'Soft', owners: ['ClusterQueue vision', 'user ana'], nodes: 2, nodeNames: nodes.slice(12, 14) }),
        row('Flavor', 'h200', { nodes: 48, usableNodes: 33, amounts: [{ resource: 'nvidia.com/gpu', total: '384', usable: '264', usableNow: '376', reserved: '16', maintenance: '96', unusable: '8' }] }),
      ] })
    }
    case 'past': {
      const since = Number(query.get('since') ?? 86400)
      const limit = Number(query.get('limit') ?? 5000)
      const found = cluster.past.filter((run) => run.ended > now() - since && (!query.get('namespace') || run.namespace === query.get('namespace')))
      return json(response, 200, { items: found.slice(0, limit), more: found.length > limit })
    }
    case 'events': { const since = Number(query.get('since') ?? 3600); return json(response, 200, { items: cluster.events.filter((each) => each.at > now() - since) }) }
    case 'audits': return json(response, 200, { items: cluster.revision && Object.keys(cluster.queues).length ? ['language', 'vision', 'speech', 'science'].map((queue, i) => ({ clusterQueue: queue, promised: 42 - i * 7, late: i === 0 ? 3 : i === 1 ? 1 : 0, lateSeconds: i === 0 ? 940 : i === 1 ? 120 : 0, delaySeconds: i === 0 ? { backfill: 0, early_end: 610.5, stopping: 329.5, loss_budget: 0 } : i === 1 ? { backfill: 0, stopping: 120 } : {}, starts: Array.from({ length: 6 }, (_, n) => ({ job: `gpujob/pretrain-7b-0${n}${i}`, namespace: `team-${queue}`, user: 'mira', promised: now() - 5000 * (n + 1), started: now() - 5000 * (n + 1) + (n === 2 && i < 2 ? 210 : -120 * n) })) })) : [] })
    case 'swaps': return json(response, 200, { items: Object.keys(cluster.nodes).length ? [0, 1, 2].map((i) => ({ hidden: false, namespace: 'team-language', workload: `gpujob-pretrain-${i}`, job: `gpujob/pretrain-7b-00${i}`, user: 'mira', queue: 'language', clusterQueue: 'language', gpus: 64, pods: 8, how: i === 1 ? 'Restart' : 'Swap', cause: ['GpuFault', 'NotReady', 'Vacated'][i], from: [`h200-00${3 + i}`], to: [`h200-01${i}`], state: i === 0 ? 'Recovering' : 'Recovered', times: { detected: now() - 400 - i * 9000, decided: now() - 399.6 - i * 9000, created: now() - 398 - i * 9000, running: i === 0 ? null : now() - 371 - i * 9000 }, seconds: i === 0 ? { decided: 0.4, created: 1.6 } : { decided: 0.4, created: 1.6, running: 27, total: 29 } })) : [] })
    case 'accuracy': return json(response, 200, { items: [{ source: 'hint', runs: 210, within: { 0.5: 0.61, 0.9: 0.97 }, factor: 1.41 }, { source: 'history', runs: 1204, within: { 0.5: 0.53, 0.9: 0.88 }, factor: 1.62 }, { source: 'model', runs: 5480, within: { 0.5: 0.49, 0.9: 0.9 }, factor: 1.38 }], since: now() - 6.4 * 86400, model: { used: true, reason: 'the model is used: its error over the last week is 12 % below that of the mean of the last two runtimes' }, starts: { starts: 1244, withinP50: 0.55, withinP90: 0.89, medianErrorSeconds: 340 }, queues: Object.keys(cluster.queues).length ? { language: { starts: 412, withinP50: 0.57, withinP90: 0.91, medianError: 0.37 }, vision: { starts: 388, withinP50: 0.52, withinP90: 0.84, medianError: 0.44 }, speech: { starts: 96, withinP50: 0.6, withinP90: 0.93, medianError: 0.29 }, science: { starts: 6, withinP50: 0.5, withinP90: 1, medianError: 0.5 } } : {} })
    case 'moves': return json(response, 200, { gangs: (cluster.nodes[parts[1]]?.occupants ?? []).filter((each) => !each.outside).map((each, i) => ({ hidden: false, namespace: each.namespace, job: each.job, user: 'mira', queue: 'language', clusterQueue: 'language', gpus: Number(each.amounts['nvidia.com/gpu']), pods: each.pods, moves: i === 0, how: i === 0 ? 'Swap' : '', to: i === 0 ? ['h200-010'] : [], obstacle: i === 0 ? '' : 'no healthy nodes have room for it without a preemption' })) })
    case 'operator': return mode.all ? json(response, 200, { leader: 'gangline-operator-6f7c9d-x2x4k', version: '0.2.0', since: now() - 86400 * 3.2, rounds: { count: 184213, medianSeconds: 0.004, p99Seconds: 0.031 }, writes: { waiting: 0, perMinute: 42 }, webhooks: { ready: 2 }, quarantined: [] }) : json(response, 403, { error: 'Your rights do not allow this.', missing: 'get deployments in gangline-system' })
    case 'actions': {
      const { verb, targets, queue, preview } = await body(request)
      const WORDS = { hold: ['would be held', 'is held'], release: ['would be released', 'is released'], cancel: ['would be deleted, with its pods', 'is deleted'], move: [`would go to LocalQueue ${queue}; its age goes with it`, `is in LocalQueue ${queue}`], top: ['would get priority class high (1000)', 'has priority class high (1000)'], cordon: ['would take no new work; what runs goes on', 'takes no new work'], uncordon: ['would take new work again', 'takes new work again'] }
      return json(response, 200, { results: targets.map((target) => {
        const job = 'name' in target ? findJob(target.namespace, target.kind, target.name) : null
        if (verb === 'hold' && job && job.state === 'Running') return { target, ok: false, text: 'The job holds quota, and a hold would stop it.' }
        if (!preview && target.node) cluster.nodes[target.node] = { ...cluster.nodes[target.node], trouble: verb === 'cordon' ? 'Cordoned' : '' }
        return { target, ok: true, text: `${'name' in target ? `${target.kind.toLowerCase()}/${target.name}` : target.node} ${WORDS[verb][preview ? 0 : 1]}` }
      }) })
    }
  }
  return json(response, 404, { error: 'There is no such answer.' })
}
const TROUBLES = { NoLeader: 'No operator leads at the moment, so nothing is decided.', Forbidden: 'Your right to list Workloads was taken away.', Expired: 'Your session has expired.', Unreachable: 'The API server does not answer.' }

const prefix = args.prefix.endsWith('/') ? args.prefix : `${args.prefix}/`
createServer((request, response) => {
  void (async () => {
    const url = new URL(request.url, 'http://localhost')
    if (!url.pathname.startsWith(prefix)) return json(response, 404, { error: 'outside of the prefix' })
    const path = url.pathname.slice(prefix.length)
    if (path.startsWith('api/')) return api(request, response, path.slice(4), url.searchParams)
    const file = normalize(path)
    const isAsset = extname(file) !== '' && !file.startsWith('..') && !file.startsWith('jobs/')
    const text = await readFile(join(DIST, isAsset ? file : 'index.html')).catch(() => null)
    if (text === null) return json(response, 404, { error: 'There is no such file: run npm run build first.' })
    const content = isAsset ? text : String(text).replace('<!--base-->', `<base href="${prefix}" />`)
    response.writeHead(200, { 'content-type': TYPES[isAsset ? extname(file) : '.html'] ?? 'application/octet-stream', 'content-security-policy': CSP, 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' })
    response.end(content)
  })().catch((error) => { console.error(error); if (!response.headersSent) json(response, 500, { error: String(error) }) })
}).listen(Number(args.port), '127.0.0.1', () => console.log(`http://127.0.0.1:${args.port}${prefix}`))
