// What the made-up cluster did: attempts of jobs on its nodes, the decisions behind them, sums of use, checks of the record.
import { random } from './cluster.mjs'

const GPU = 'nvidia.com/gpu'
const TEAMS = { language: ['mira', 'jonas', 'aiko', 'tobias'], vision: ['ana', 'lukas', 'sofia'], speech: ['petra', 'omar'], science: ['ines', 'wei', 'noor'] }
const STEMS = ['pretrain-7b', 'finetune-chat', 'eval-suite', 'tokenize', 'vit-sweep', 'rlhf-reward', 'diffusion-xl', 'asr-large', 'pose-probe', 'distill-3b', 'speech-align', 'protein-fold', 'ranker', 'ablation']
const KINDS = ['Job', 'GPUJob', 'JobSet', 'PyTorchJob']
const SIZES = [1, 2, 4, 8, 8, 8, 8, 16, 16, 32, 64]
const RULES = ['InClusterQueue', 'InCohortReclamation', 'InCohortFairSharing']
const DAY = 86400

/** Attempts of the last `days` that do not overlap on any GPU, and the decisions that made them. */
export function makeRecord(cluster, { days = 8, seed = 19 } = {}) {
  const rnd = random(seed)
  const pick = (list) => list[Math.floor(rnd() * list.length)]
  const now = Date.now() / 1000
  const begin = now - days * DAY
  const teams = Object.keys(TEAMS)
  const nodes = Object.values(cluster.nodes)
  if (!nodes.length) return { attempts: [], decisions: [], from: now }
  const live = new Map(nodes.map((node) => [node.metadata.name, []]))
  for (const run of Object.values(cluster.runs)) {
    if (run.state !== 'Running') continue
    for (const name of run.nodes) live.get(name)?.push([run.from, Math.min(8, Math.ceil(run.gpus / Math.max(1, run.nodes.length)))])
  }
  const busy = new Map(nodes.map((node) => [node.metadata.name, []]))
  const roomOf = (node, from, to) => {
    const name = node.metadata.name
    let taken = 0
    for (const [at, gpus] of live.get(name)) if (at < to) taken += gpus
    for (const each of busy.get(name)) if (each.to > from && each.from < to) taken += each.gpus
    return Number(node.capacity[GPU]) - taken
  }
  const attempts = []
  let number = 0
  for (let at = begin; at < now - 300; at += 120 + rnd() * (14000 / Math.max(4, nodes.length))) {
    for (const list of busy.values()) while (list.length && list[0].to < at - 60) list.shift()
    const gpus = pick(SIZES)
    const length = 600 + rnd() ** 2.2 * 52000
    const to = Math.min(at + length, now - 20 - rnd() * 200)
    const perPod = Math.min(8, gpus)
    const flavor = pick(nodes).flavors[0]
    const seats = []
    for (const node of nodes) {
      if (node.flavors[0] !== flavor || seats.length * perPod >= gpus) continue
      let room = roomOf(node, at, to)
      while (room >= perPod && seats.length * perPod < gpus) { seats.push(node.metadata.name); room -= perPod }
    }
    if (seats.length * perPod < gpus) continue
    const team = pick(teams)
    const user = pick(TEAMS[team])
    const jobKind = pick(KINDS)
    const jobName = `${pick(STEMS)}-${(number++).toString(36).padStart(3, '0')}`
    for (const name of new Set(seats)) busy.get(name).push({ from: at, to, gpus: perPod * seats.filter((each) => each === name).length })
    for (const list of busy.values()) list.sort((a, b) => a.to - b.to)
    const luck = rnd()
    const end = luck < 0.68 ? 'Succeeded' : luck < 0.78 ? 'Failed' : luck < 0.89 ? 'Preempted' : luck < 0.94 ? 'Evicted' : luck < 0.985 ? 'Cancelled' : 'Released'
    const ready = at + 20 + rnd() ** 3 * 900
    const ran = Math.max(0, to - ready)
    const saved = end === 'Succeeded' ? ran : end === 'Preempted' && rnd() < 0.6 ? ran * rnd() : 0
    const lostTo = { Failed: 'failure', Preempted: 'preemption', Evicted: rnd() < 0.4 ? 'overrun' : 'eviction', Cancelled: 'cancel' }[end] ?? ''
    const lost = lostTo ? Math.max(0, to - Math.max(at, ready) - saved) : 0
    const measured = flavor === 'h200'
    const reason = end === 'Preempted' ? pick(RULES) : lostTo === 'overrun' ? 'MaximumExecutionTimeExceeded' : end === 'Evicted' ? pick(['PodsReadyTimeout', 'NodeFailures', 'Deactivated']) : end === 'Failed' ? 'BackoffLimitExceeded' : ''
    const by = end === 'Preempted' ? `gpujob/pretrain-7b-${Math.floor(rnd() * 900).toString(36).padStart(3, '0')}` : ''
    const idle = measured ? ran * gpus * rnd() * 0.22 / 3600 : null
    const all = (gpus * (to - at)) / 3600
    const starting = (gpus * (Math.min(ready, to) - at)) / 3600
    attempts.push({
      hidden: false, namespace: `team-${team}`, workload: `${jobKind.toLowerCase()}-${jobName}-${(number * 7919 % 65536).toString(16)}`, jobKind, jobName, user, localQueue: team, clusterQueue: team, flavor, gpus,
      pods: gpus / perPod, attempt: 1 + Math.floor(rnd() ** 4 * 4), submitted: at - rnd() ** 3 * 20000, reserved: at, started: at + 1, ready: ready < to ? ready : null, ended: to, end, reason,
      text: end === 'Preempted' ? `Preempted to accommodate ${by} (${reason})` : end === 'Failed' ? 'Job has reached the specified backoff limit' : end === 'Evicted' ? `Evicted: ${reason}` : end === 'Cancelled' ? 'The job was deleted' : '',
      by, savedSeconds: saved, lostSeconds: lost, lostGpuHours: (lost * gpus) / 3600, gpuHours: all, startingGpuHours: starting, idleGpuHours: idle,
      usefulGpuHours: Math.max(0, all - starting - (lost * gpus) / 3600 - (idle ?? 0)), lostTo, backfilled: rnd() < 0.14, nodes: [...new Set(seats)].slice(0, 64), nodeCount: new Set(seats).size,
    })
  }
  for (let i = 11; i < attempts.length; i += 29) {
    const shown = `hidden-${(i * 2654435761 >>> 0).toString(16).slice(0, 8)}`
    Object.assign(attempts[i], { hidden: true, namespace: '', workload: shown, jobKind: '', jobName: shown, user: '', localQueue: '', text: '', reason: '', by: '', nodes: [] })
  }
  const running = Object.entries(cluster.runs).filter(([, run]) => run.state === 'Running').map(([id, run]) => {
    const job = cluster.jobs[id]
    const ready = job?.state === 'Starting' ? null : run.from + 40 + rnd() ** 2 * 600
    const hours = (run.gpus * (now - run.from)) / 3600
    return {
      hidden: run.hidden, namespace: run.metadata.namespace, workload: run.metadata.name, jobKind: job?.jobKind ?? 'Job', jobName: job?.jobName ?? run.job, user: run.user, localQueue: run.queue, clusterQueue: run.clusterQueue,
      flavor: job?.flavors[0] ?? '', gpus: run.gpus, pods: job?.pods ?? 1, attempt: 1 + Math.floor(rnd() ** 4 * 3), submitted: job?.created ?? run.from, reserved: run.from, started: run.from + 1, ready, ended: null, end: '', reason: '', text: '', by: '',
      savedSeconds: 0, lostSeconds: 0, lostGpuHours: 0, gpuHours: hours, startingGpuHours: hours * 0.02, idleGpuHours: null, usefulGpuHours: hours * 0.9, lostTo: '', backfilled: run.backfilled, nodes: run.nodes, nodeCount: run.nodes.length,
    }
  })
  const decisions = []
  const decide = (at, attempt, decision, more = {}) => decisions.push({ at, decision, hidden: attempt.hidden, namespace: attempt.namespace, workload: attempt.workload, jobKind: attempt.jobKind, jobName: attempt.jobName, user: attempt.user, clusterQueue: attempt.clusterQueue, gpus: attempt.gpus, reason: attempt.reason, by: '', flavors: [attempt.flavor], nodes: [], backfilled: false, text: '', ...more })
  for (const each of [...attempts, ...running]) {
    decide(each.reserved, each, 'Admit', { reason: '', nodes: each.nodes, backfilled: each.backfilled, text: each.hidden ? '' : `It starts on ${each.flavor}${each.backfilled ? ', before its turn, since that delays no reserved start' : ''}.` })
    if (each.reserved - each.submitted > 600) decide(each.submitted + 5, each, 'ReportPending', { reason: 'WaitingForQuota', text: each.hidden ? '' : `It waits: ${Math.ceil(each.gpus / 2)} more GPUs of ${each.flavor} needed.` })
    if (each.end === 'Preempted') decide(each.ended - 6, each, 'Preempt', { by: each.by, text: each.by ? `It is preempted for ${each.by}, which takes back quota of its ClusterQueue that was borrowed.` : '' })
    if (each.end === 'Evicted') decide(each.ended - 4, each, 'Evict', { text: each.hidden ? '' : `It is evicted: ${each.reason}.` })
  }
  decisions.sort((a, b) => a.at - b.at)
  let round = 4000
  decisions.forEach((each, i) => {
    if (i === 0 || each.at - decisions[i - 1].at > 1) round += 1 + Math.floor(rnd() * 9)
    Object.assign(each, { number: 1000 + i, round, metadata: { name: String(1000 + i) } })
  })
  attempts.sort((a, b) => b.ended - a.ended)
  return { attempts: [...running, ...attempts], decisions, from: begin + 3600 }
}

const LOST = ['preemption', 'failure', 'overrun', 'cancel', 'eviction']

export function usageSums(attempts, { since, by, halfLife, namespace }) {
  const now = Date.now() / 1000
  const from = now - since
  const groups = new Map()
  const add = (name, hidden, each, part, at) => {
    let row = groups.get(name)
    if (!row) groups.set(name, (row = { metadata: { name }, name, hidden, jobs: 0, attempts: 0, gpuHours: 0, usefulGpuHours: 0, startingGpuHours: 0, idleGpuHours: null, lost: Object.fromEntries(LOST.map((cause) => [cause, 0])), waitedGpuHours: 0, medianWaitSeconds: 900 + name.length * 311, preemptions: 0, weightedGpuHours: halfLife ? 0 : null, seen: new Set() }))
    row.seen.add(each.workload)
    row.attempts += 1
    row.gpuHours += each.gpuHours * part
    row.usefulGpuHours += each.usefulGpuHours * part
    row.startingGpuHours += each.startingGpuHours * part
    if (each.idleGpuHours !== null) row.idleGpuHours = (row.idleGpuHours ?? 0) + each.idleGpuHours * part
    if (each.lostTo) row.lost[each.lostTo] += each.lostGpuHours * part
    row.waitedGpuHours += ((each.reserved - each.submitted) * each.gpus) / 3600
    if (each.end === 'Preempted') row.preemptions += 1
    if (halfLife) row.weightedGpuHours += each.gpuHours * part * 0.5 ** ((now - at) / halfLife)
  }
  for (const each of attempts) {
    const end = each.ended ?? now
    if (end < from || (namespace && each.namespace !== namespace && !each.hidden)) continue
    const begin = Math.max(each.reserved, from)
    const whole = Math.max(1, end - each.reserved)
    if (by !== 'day') add((by === 'localQueue' && each[by] ? `${each.namespace}/${each[by]}` : each[by]) || 'hidden-3f1c22aa', !each[by], each, (end - begin) / whole, (begin + end) / 2)
    else {
      for (let at = Math.floor(begin / 86400) * 86400; at < end; at += 86400) {
        const part = Math.min(end, at + 86400) - Math.max(begin, at)
        if (part > 0) add(new Date(at * 1000).toISOString().slice(0, 10), false, each, part / whole, at)
      }
    }
  }
  return [...groups.values()].map(({ seen, ...row }) => ({ ...row, jobs: seen.size }))
}

export function decisionInputs(cluster, decisions, number) {
  const decision = decisions.find((each) => each.number === number)
  if (!decision) return null
  const queue = cluster.queues[`cq/${decision.clusterQueue}`]
  const known = (row) => ({ priority: row.decision === 'Preempt' ? 0 : 100, created: row.at - 5400, queue: row.clusterQueue, position: row.decision === 'Admit' ? 0 : null, gpus: row.gpus, amounts: { cpu: String(row.gpus * 12), [GPU]: String(row.gpus) }, state: row.decision === 'Admit' ? 'Pending' : 'Running', forecast: { p50: 7200, p90: 14400 }, saved: row.decision === 'Preempt' ? 1800 : null })
  const line = `${decision.decision} ${decision.hidden ? decision.workload : `${decision.namespace}/${decision.workload}`}`
  return {
    decision, same: true, recorded: [line], repeated: [line],
    inputs: {
      workload: known(decision),
      queue: { name: decision.clusterQueue, cohorts: queue?.cohorts ?? [], quotas: (queue?.quotas ?? []).map((quota) => ({ flavor: quota.flavor, resource: quota.resource, nominal: quota.nominal, used: quota.used, borrowed: quota.borrowed, available: String(Math.max(0, Number(quota.nominal) - Number(quota.used))) })), waiting: 23, head: 'gpujob/pretrain-7b-0a1', reservedUntil: decision.at + 4000 },
      by: decision.by ? { ...known(decision), priority: 1000, state: 'Pending', position: 0, gpus: 64 } : null,
      nodes: { free: [{ gpus: 8, nodes: 3 }, { gpus: 4, nodes: 1 }, { gpus: 2, nodes: 2 }, { gpus: 0, nodes: 41 }] },
    },
  }
}
